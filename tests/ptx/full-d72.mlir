// RUN: attnc --emit=ptx %s -o %t.ptx && FileCheck %s --input-file=%t.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_80 %t.ptx -o %t.80 && ptxas -arch=sm_90 %t.ptx -o %t.90 %}
// D 72: Q and K are padded to 80 columns with zeros; V has 9 groups of 8.
// A row of Q is 9 chunks from memory and one of zeros; 8 lanes take a row, so the
// second pass has two lanes, of which one fills in zeros.
// CHECK: setp.lt.s32 [[IN:%in_row0]], %copy_chunk, 2;
// CHECK: setp.lt.s32 [[FROM:%in_row1]], %copy_chunk, 1;
// CHECK: copy 64 rows of q to q
// CHECK: cp.async.cg.shared.global [%copy_target
// CHECK-NEXT: selp.b32 [[SIZE:%size[0-9]+]], %size{{[0-9]+}}, 0, [[FROM]];
// CHECK-NEXT: @[[IN]] cp.async.cg.shared.global [%copy_target{{.*}}+128], [%q_src{{[0-9]*}}+128], 16, [[SIZE]];
// The ninth group of V is loaded alone, and stored 4 bytes a lane.
// CHECK: ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16
// CHECK: st.global.v2.b32
// CHECK: st.global.b32

#wg = #gpu.address_space<workgroup>
module attributes {attn.target = "sm_80"} {
  func.func @full_d72(
      %Q: memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>> {attn.arg = "q"},
      %K: memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>> {attn.arg = "k"},
      %V: memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>> {attn.arg = "v"},
      %O: memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>> {attn.arg = "o"},
      %LSE: memref<?x?x?xf32, strided<[?, ?, ?]>> {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"})
      attributes {attn.kernel = "main", attn.tile = array<i32: 64, 64>, attn.warps = 4 : i32, attn.shared_bytes = 52224 : i32,
        attn.grid = ["q_len", "64", "ceildiv", "heads", "mul", "batch", "mul"]} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c63 = arith.constant 63 : i32
    %c64 = arith.constant 64 : i32
    %zero_s = arith.constant dense<0.0> : vector<64x64xf32>
    %zero_acc = arith.constant dense<0.0> : vector<64x72xf32>
    %neg_inf = arith.constant dense<0xFF800000> : vector<64x64xf32>
    %neg_inf_row = arith.constant dense<0xFF800000> : vector<64x1xf32>
    %zero_row = arith.constant dense<0.0> : vector<64x1xf32>
    %zero_l = arith.constant dense<0.0> : vector<64x4xf32>
    %ninf_red = arith.constant dense<0xFF800000> : vector<64xf32>
    %zero_red = arith.constant dense<0.0> : vector<64xf32>
    %scale_row = arith.constant dense<0.170023248> : vector<64x1xf32>
    %scale = arith.constant dense<0.170023248> : vector<64x64xf32>
    // ---- tile coordinates
    %bid = gpu.block_id x
    %cta = arith.index_cast %bid : index to i32
    %q_up = arith.addi %q_len, %c63 : i32
    %q_tiles = arith.divui %q_up, %c64 : i32
    %bh = arith.divui %cta, %q_tiles : i32
    %qt_rev = arith.remui %cta, %q_tiles : i32
    %qt_last = arith.subi %q_tiles, %c1 : i32
    %qt = arith.subi %qt_last, %qt_rev : i32
    %b = arith.divui %bh, %heads : i32
    %h = arith.remui %bh, %heads : i32
    %ratio = arith.divui %heads, %kv_heads : i32
    %h_kv = arith.divui %h, %ratio : i32
    %q0 = arith.muli %qt, %c64 : i32
    // ---- row and column positions
    %row_step = vector.step : vector<64xindex>
    %row_i32 = arith.index_cast %row_step : vector<64xindex> to vector<64xi32>
    %row_local = vector.shape_cast %row_i32 : vector<64xi32> to vector<64x1xi32>
    %q0_row = vector.broadcast %q0 : i32 to vector<64x1xi32>
    %q_pos = arith.addi %row_local, %q0_row : vector<64x1xi32>
    %col_step = vector.step : vector<64xindex>
    %col_i32 = arith.index_cast %col_step : vector<64xindex> to vector<64xi32>
    %col_local = vector.shape_cast %col_i32 : vector<64xi32> to vector<1x64xi32>
    // ---- shared memory
    %q_s = "attn.shared"() {name = "q", byte_offset = 0 : i32, pitch = 11 : i32, swizzle_bits = 0 : i32, swizzle_shift = 0 : i32} : () -> memref<64x80xf16, #wg>
    %k_s = "attn.shared"() {name = "k", byte_offset = 11264 : i32, pitch = 11 : i32, swizzle_bits = 0 : i32, swizzle_shift = 0 : i32} : () -> memref<2x64x80xf16, #wg>
    %v_s = "attn.shared"() {name = "v", byte_offset = 33792 : i32, pitch = 9 : i32, swizzle_bits = 0 : i32, swizzle_shift = 0 : i32} : () -> memref<2x64x72xf16, #wg>
    // ---- key range: block index runs from n-1 down to 0
    %kv_up = arith.addi %kv_len, %c63 : i32
    %n_all = arith.divui %kv_up, %c64 : i32
    %n = arith.addi %n_all, %c0 : i32
    // ---- prologue
    "attn.copy_async"(%Q, %b, %h, %q0, %q_len, %q_s) : (memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32, memref<64x80xf16, #wg>) -> ()
    %last = arith.subi %n, %c1 : i32
    %k_last = arith.muli %last, %c64 : i32
    %has0 = arith.cmpi sgt, %n, %c0 : i32
    scf.if %has0 {
      %k_st = "attn.stage"(%k_s, %c0) : (memref<2x64x80xf16, #wg>, i32) -> memref<64x80xf16, #wg>
      "attn.copy_async"(%K, %b, %h_kv, %k_last, %kv_len, %k_st) : (memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32, memref<64x80xf16, #wg>) -> ()
      %v_st = "attn.stage"(%v_s, %c0) : (memref<2x64x72xf16, #wg>, i32) -> memref<64x72xf16, #wg>
      "attn.copy_async"(%V, %b, %h_kv, %k_last, %kv_len, %v_st) : (memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32, memref<64x72xf16, #wg>) -> ()
    }
    "attn.commit_group"() : () -> ()
    // ---- mainloop
    %r:3 = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero_acc, %m = %neg_inf_row, %l = %zero_l)
        -> (vector<64x72xf32>, vector<64x1xf32>, vector<64x4xf32>) : i32 {
      "attn.wait_group"() {pending = 0 : i32} : () -> ()
      gpu.barrier
      %stage = arith.remui %i, %c2 : i32
      %i_next = arith.addi %i, %c1 : i32
      %stage_next = arith.remui %i_next, %c2 : i32
      %more = arith.cmpi slt, %i_next, %n : i32
      scf.if %more {
        %blk_next = arith.subi %last, %i_next : i32
        %k0_next = arith.muli %blk_next, %c64 : i32
        %k_st = "attn.stage"(%k_s, %stage_next) : (memref<2x64x80xf16, #wg>, i32) -> memref<64x80xf16, #wg>
        "attn.copy_async"(%K, %b, %h_kv, %k0_next, %kv_len, %k_st) : (memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32, memref<64x80xf16, #wg>) -> ()
        %v_st = "attn.stage"(%v_s, %stage_next) : (memref<2x64x72xf16, #wg>, i32) -> memref<64x72xf16, #wg>
        "attn.copy_async"(%V, %b, %h_kv, %k0_next, %kv_len, %v_st) : (memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32, memref<64x72xf16, #wg>) -> ()
      }
      "attn.commit_group"() : () -> ()
      %blk = arith.subi %last, %i : i32
      %k0 = arith.muli %blk, %c64 : i32
      %k = "attn.stage"(%k_s, %stage) : (memref<2x64x80xf16, #wg>, i32) -> memref<64x80xf16, #wg>
      %v = "attn.stage"(%v_s, %stage) : (memref<2x64x72xf16, #wg>, i32) -> memref<64x72xf16, #wg>
      %s0 = "attn.dot"(%q_s, %k, %zero_s) {transpose_b} : (memref<64x80xf16, #wg>, memref<64x80xf16, #wg>, vector<64x64xf32>) -> vector<64x64xf32>
      %k0_col = vector.broadcast %k0 : i32 to vector<1x64xi32>
      %kv_pos = arith.addi %col_local, %k0_col : vector<1x64xi32>
      %s = vector.broadcast %s0 : vector<64x64xf32> to vector<64x64xf32>
      %k_end = arith.addi %k0, %c64 : i32
      %over = arith.cmpi sgt, %k_end, %kv_len : i32
      %partial = arith.ori %over, %over : i1
      %x = scf.if %partial -> (vector<64x64xf32>) {
        %kv_len_col = vector.broadcast %kv_len : i32 to vector<1x64xi32>
        %in = arith.cmpi slt, %kv_pos, %kv_len_col : vector<1x64xi32>
        %inb = vector.broadcast %in : vector<1x64xi1> to vector<64x64xi1>
        %masked = arith.select %inb, %s, %neg_inf : vector<64x64xi1>, vector<64x64xf32>
        scf.yield %masked : vector<64x64xf32>
      } else {
        scf.yield %s : vector<64x64xf32>
      }
      %rmax = vector.multi_reduction <maxnumf>, %x, %ninf_red [1] : vector<64x64xf32> to vector<64xf32>
      %rmax_row = vector.shape_cast %rmax : vector<64xf32> to vector<64x1xf32>
      %rmax2 = "attn.mul_rp"(%rmax_row, %scale_row) : (vector<64x1xf32>, vector<64x1xf32>) -> vector<64x1xf32>
      %m_new = arith.maxnumf %m, %rmax2 : vector<64x1xf32>
      %empty = arith.cmpf oeq, %m_new, %neg_inf_row : vector<64x1xf32>
      %m_ref = arith.select %empty, %zero_row, %m_new : vector<64x1xi1>, vector<64x1xf32>
      %m_diff = arith.subf %m, %m_ref : vector<64x1xf32>
      %alpha = math.exp2 %m_diff : vector<64x1xf32>
      %m_neg = arith.negf %m_ref : vector<64x1xf32>
      %m_neg_t = vector.broadcast %m_neg : vector<64x1xf32> to vector<64x64xf32>
      %e = math.fma %x, %scale, %m_neg_t : vector<64x64xf32>
      %p = math.exp2 %e : vector<64x64xf32>
      %alpha_l = vector.broadcast %alpha : vector<64x1xf32> to vector<64x4xf32>
      %l_scaled = arith.mulf %l, %alpha_l : vector<64x4xf32>
      %l_new = "attn.partial_sum"(%p, %l_scaled) : (vector<64x64xf32>, vector<64x4xf32>) -> vector<64x4xf32>
      %p16 = arith.truncf %p : vector<64x64xf32> to vector<64x64xf16>
      %alpha_t = vector.broadcast %alpha : vector<64x1xf32> to vector<64x72xf32>
      %acc_scaled = arith.mulf %acc, %alpha_t : vector<64x72xf32>
      %acc_new = "attn.dot"(%p16, %v, %acc_scaled) : (vector<64x64xf16>, memref<64x72xf16, #wg>, vector<64x72xf32>) -> vector<64x72xf32>
      scf.yield %acc_new, %m_new, %l_new : vector<64x72xf32>, vector<64x1xf32>, vector<64x4xf32>
    }
    // ---- epilogue
    %ln2 = arith.constant dense<0.693147182> : vector<64x1xf32>
    %one_row = arith.constant dense<1.0> : vector<64x1xf32>
    %l_red = vector.multi_reduction <add>, %r#2, %zero_red [1] : vector<64x4xf32> to vector<64xf32>
    %l_row = vector.shape_cast %l_red : vector<64xf32> to vector<64x1xf32>
    %none = arith.cmpf oeq, %l_row, %zero_row : vector<64x1xf32>
    %inv0 = arith.divf %one_row, %l_row : vector<64x1xf32>
    %inv = arith.select %none, %zero_row, %inv0 : vector<64x1xi1>, vector<64x1xf32>
    %inv_t = vector.broadcast %inv : vector<64x1xf32> to vector<64x72xf32>
    %o = arith.mulf %r#0, %inv_t : vector<64x72xf32>
    %o16 = arith.truncf %o : vector<64x72xf32> to vector<64x72xf16>
    "attn.store"(%o16, %O, %b, %h, %q0, %q_len) : (vector<64x72xf16>, memref<?x?x?x72xf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32) -> ()
    %log2l = math.log2 %l_row : vector<64x1xf32>
    %lse2 = arith.addf %r#1, %log2l : vector<64x1xf32>
    %lse0 = arith.mulf %lse2, %ln2 : vector<64x1xf32>
    %lse = arith.select %none, %neg_inf_row, %lse0 : vector<64x1xi1>, vector<64x1xf32>
    "attn.store"(%lse, %LSE, %b, %h, %q0, %q_len) {optional} : (vector<64x1xf32>, memref<?x?x?xf32, strided<[?, ?, ?]>>, i32, i32, i32, i32) -> ()
    return
  }
}
