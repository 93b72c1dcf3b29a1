// RUN: attnc --emit=ptx %s -o %t.ptx && FileCheck %s --input-file=%t.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_90a %t.ptx -o %t.90a %}
// Written by hand: causal, tile 128 x 128, a producer and two consumer warpgroups.
// CHECK: .param .align 64 .b8
// CHECK: setmaxnreg.dec.sync.aligned.u32 24
// CHECK: cp.async.bulk.tensor.5d
// CHECK: setmaxnreg.inc.sync.aligned.u32 240
// CHECK-COUNT-8: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
// CHECK: wgmma.wait_group.sync.aligned 0
// CHECK: vote.sync.any.pred
module attributes {attn.target = "sm_90a"} {
  func.func @causal(
      %Q: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> {attn.arg = "q"}, %K: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> {attn.arg = "k"}, %V: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> {attn.arg = "v"}, %O: memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>> {attn.arg = "o"},
      %LSE: memref<?x?x?xf32, strided<[?, ?, ?]>> {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"})
      attributes {attn.kernel = "main", attn.tile = array<i32: 128, 128>, attn.warps = 12 : i32, attn.row_warps = 4 : i32, attn.shared_bytes = 163968 : i32,
                  attn.grid = ["sm_count", "q_len", "128", "ceildiv", "heads", "mul", "batch", "mul", "min"]} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c4 = arith.constant 4 : i32
    %cm1 = arith.constant -1 : i32
    %c32 = arith.constant 32 : i32
    %c63 = arith.constant 63 : i32
    %c64 = arith.constant 64 : i32
    %c127 = arith.constant 127 : i32
    %c128 = arith.constant 128 : i32
    %c3 = arith.constant 3 : i32
    %zero_s = arith.constant dense<0.0> : vector<64x128xf32>
    %zero_o = arith.constant dense<0.0> : vector<64x128xf32>
    %ninf_s = arith.constant dense<0xFF800000> : vector<64x128xf32>
    %ninf_row = arith.constant dense<0xFF800000> : vector<64x1xf32>
    %zero_row = arith.constant dense<0.0> : vector<64x1xf32>
    %one_row = arith.constant dense<1.0> : vector<64x1xf32>
    %zero_l = arith.constant dense<0.0> : vector<64x4xf32>
    %ninf_acc = arith.constant dense<0xFF800000> : vector<64xf32>
    %zero_acc = arith.constant dense<0.0> : vector<64xf32>
    %c_row = arith.constant dense<0.127517432> : vector<64x1xf32>
    %c_tile = arith.constant dense<0.127517432> : vector<64x128xf32>
    %tau_row = arith.constant dense<62.7372> : vector<64x1xf32>
    %int_min_row = arith.constant dense<-2147483648> : vector<64x1xi32>
    %ln2_row = arith.constant dense<0.693147182> : vector<64x1xf32>
    // ---- shared memory: tiles of 64-column panels with 128-byte swizzle, then barriers
    %q_s = "attn.shared"() {name = "q", byte_offset = 0 : i32, swizzle_bytes = 128 : i32} : () -> memref<2x64x128xbf16, #gpu.address_space<workgroup>>
    %k_s = "attn.shared"() {name = "k", byte_offset = 32768 : i32, swizzle_bytes = 128 : i32} : () -> memref<2x128x128xbf16, #gpu.address_space<workgroup>>
    %v_s = "attn.shared"() {name = "v", byte_offset = 98304 : i32, swizzle_bytes = 128 : i32} : () -> memref<2x128x128xbf16, #gpu.address_space<workgroup>>
    %q_full = "attn.mbarriers"() {name = "q_full", byte_offset = 163840 : i32, arrivals = 1 : i32} : () -> memref<2xi64, #gpu.address_space<workgroup>>
    %q_empty = "attn.mbarriers"() {name = "q_empty", byte_offset = 163856 : i32, arrivals = 4 : i32} : () -> memref<2xi64, #gpu.address_space<workgroup>>
    %k_full = "attn.mbarriers"() {name = "k_full", byte_offset = 163872 : i32, arrivals = 1 : i32} : () -> memref<2xi64, #gpu.address_space<workgroup>>
    %k_empty = "attn.mbarriers"() {name = "k_empty", byte_offset = 163888 : i32, arrivals = 8 : i32} : () -> memref<2xi64, #gpu.address_space<workgroup>>
    %v_full = "attn.mbarriers"() {name = "v_full", byte_offset = 163904 : i32, arrivals = 1 : i32} : () -> memref<2xi64, #gpu.address_space<workgroup>>
    %v_empty = "attn.mbarriers"() {name = "v_empty", byte_offset = 163920 : i32, arrivals = 8 : i32} : () -> memref<2xi64, #gpu.address_space<workgroup>>
    %tid = gpu.thread_id x
    %tid32 = arith.index_cast %tid : index to i32
    %first_thread = arith.cmpi eq, %tid32, %c0 : i32
    scf.if %first_thread {
      "attn.mbarrier_init"(%q_full) : (memref<2xi64, #gpu.address_space<workgroup>>) -> ()
      "attn.mbarrier_init"(%q_empty) : (memref<2xi64, #gpu.address_space<workgroup>>) -> ()
      "attn.mbarrier_init"(%k_full) : (memref<2xi64, #gpu.address_space<workgroup>>) -> ()
      "attn.mbarrier_init"(%k_empty) : (memref<2xi64, #gpu.address_space<workgroup>>) -> ()
      "attn.mbarrier_init"(%v_full) : (memref<2xi64, #gpu.address_space<workgroup>>) -> ()
      "attn.mbarrier_init"(%v_empty) : (memref<2xi64, #gpu.address_space<workgroup>>) -> ()
      "attn.fence_mbarrier_init"() : () -> ()
    }
    gpu.barrier
    // ---- tiles: persistent, heads fastest, query tiles from the last to the first
    %bid = gpu.block_id x
    %cta = arith.index_cast %bid : index to i32
    %gdim = gpu.grid_dim x
    %ctas = arith.index_cast %gdim : index to i32
    %q_up = arith.addi %q_len, %c127 : i32
    %q_tiles = arith.divui %q_up, %c128 : i32
    %bh = arith.muli %batch, %heads : i32
    %tiles = arith.muli %bh, %q_tiles : i32
    %ratio = arith.divui %heads, %kv_heads : i32
    %kv_up = arith.addi %kv_len, %c127 : i32
    %kv_blocks = arith.divui %kv_up, %c128 : i32
    %warp_idx = gpu.subgroup_id : index
    %warp_any = arith.index_cast %warp_idx : index to i32
    %warp = "attn.uniform"(%warp_any) : (i32) -> i32
    %warpgroup = arith.divui %warp, %c4 : i32
    %is_producer = arith.cmpi eq, %warpgroup, %c0 : i32
    scf.if %is_producer {
      "attn.set_max_registers"() {count = 24 : i32, action = "decrease"} : () -> ()
      %is_load_warp = arith.cmpi eq, %warp, %c0 : i32
      %elected = "attn.elect"() : () -> i1
      %is_loader = arith.andi %is_load_warp, %elected : i1
      scf.if %is_loader {
        %pr:6 = scf.for %tile = %cta to %tiles step %ctas iter_args(%ks = %c0, %kp = %c0, %vs = %c0, %vp = %c0, %qp = %c0, %dummy = %c0) -> (i32, i32, i32, i32, i32, i32) : i32 {
          %t_bh = arith.remui %tile, %bh : i32
          %t_rev = arith.divui %tile, %bh : i32
          %t_last = arith.subi %q_tiles, %c1 : i32
          %qt = arith.subi %t_last, %t_rev : i32
          %b = arith.divui %t_bh, %heads : i32
          %h = arith.remui %t_bh, %heads : i32
          %h_kv = arith.divui %h, %ratio : i32
          %q0 = arith.muli %qt, %c128 : i32
          %q_end = arith.addi %q0, %c128 : i32
          %q_end_up = arith.addi %q_end, %c127 : i32
          %n_causal = arith.divui %q_end_up, %c128 : i32
          %n = arith.minsi %kv_blocks, %n_causal : i32
          %last = arith.subi %n, %c1 : i32
          %some = arith.cmpi sgt, %n, %c0 : i32
          %qi:5 = scf.if %some -> (i32, i32, i32, i32, i32) {
            %k_first = arith.muli %last, %c128 : i32
            %k0_ep = arith.xori %kp, %c1 : i32
            "attn.mbarrier_wait"(%k_empty, %ks, %k0_ep) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
            "attn.mbarrier_expect_tx"(%k_full, %ks) {bytes = 32768 : i32} : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %k0_tile = "attn.stage"(%k_s, %ks) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
            "attn.tma_load"(%K, %b, %h_kv, %k_first, %k0_tile, %k_full, %ks) : (memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, memref<128x128xbf16, #gpu.address_space<workgroup>>, memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %k0_inc = arith.addi %ks, %c1 : i32
            %k0_wrap = arith.cmpi eq, %k0_inc, %c2 : i32
            %k0_stage = arith.select %k0_wrap, %c0, %k0_inc : i32
            %k0_flip = arith.xori %kp, %c1 : i32
            %k0_parity = arith.select %k0_wrap, %k0_flip, %kp : i32
            %q_ep = arith.xori %qp, %c1 : i32
            "attn.mbarrier_wait"(%q_empty, %c0, %q_ep) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
            "attn.mbarrier_expect_tx"(%q_full, %c0) {bytes = 16384 : i32} : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %q_tile0 = "attn.stage"(%q_s, %c0) : (memref<2x64x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<64x128xbf16, #gpu.address_space<workgroup>>
            %q_row0 = arith.addi %q0, %c0 : i32
            "attn.tma_load"(%Q, %b, %h, %q_row0, %q_tile0, %q_full, %c0) : (memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, memref<64x128xbf16, #gpu.address_space<workgroup>>, memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            "attn.mbarrier_wait"(%q_empty, %c1, %q_ep) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
            "attn.mbarrier_expect_tx"(%q_full, %c1) {bytes = 16384 : i32} : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %q_tile1 = "attn.stage"(%q_s, %c1) : (memref<2x64x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<64x128xbf16, #gpu.address_space<workgroup>>
            %q_row1 = arith.addi %q0, %c64 : i32
            "attn.tma_load"(%Q, %b, %h, %q_row1, %q_tile1, %q_full, %c1) : (memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, memref<64x128xbf16, #gpu.address_space<workgroup>>, memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %qp_next = arith.xori %qp, %c1 : i32
            %lp:4 = scf.for %i = %c1 to %n step %c1 iter_args(%ks1 = %k0_stage, %kp1 = %k0_parity, %vs1 = %vs, %vp1 = %vp) -> (i32, i32, i32, i32) : i32 {
              %blk = arith.subi %last, %i : i32
              %krow = arith.muli %blk, %c128 : i32
              %vrow = arith.addi %krow, %c128 : i32
              %k1_ep = arith.xori %kp1, %c1 : i32
              "attn.mbarrier_wait"(%k_empty, %ks1, %k1_ep) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
              "attn.mbarrier_expect_tx"(%k_full, %ks1) {bytes = 32768 : i32} : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
              %k1_tile = "attn.stage"(%k_s, %ks1) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
              "attn.tma_load"(%K, %b, %h_kv, %krow, %k1_tile, %k_full, %ks1) : (memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, memref<128x128xbf16, #gpu.address_space<workgroup>>, memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
              %k1_inc = arith.addi %ks1, %c1 : i32
              %k1_wrap = arith.cmpi eq, %k1_inc, %c2 : i32
              %k1_stage = arith.select %k1_wrap, %c0, %k1_inc : i32
              %k1_flip = arith.xori %kp1, %c1 : i32
              %k1_parity = arith.select %k1_wrap, %k1_flip, %kp1 : i32
              %v1_ep = arith.xori %vp1, %c1 : i32
              "attn.mbarrier_wait"(%v_empty, %vs1, %v1_ep) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
              "attn.mbarrier_expect_tx"(%v_full, %vs1) {bytes = 32768 : i32} : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
              %v1_tile = "attn.stage"(%v_s, %vs1) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
              "attn.tma_load"(%V, %b, %h_kv, %vrow, %v1_tile, %v_full, %vs1) : (memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, memref<128x128xbf16, #gpu.address_space<workgroup>>, memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
              %v1_inc = arith.addi %vs1, %c1 : i32
              %v1_wrap = arith.cmpi eq, %v1_inc, %c2 : i32
              %v1_stage = arith.select %v1_wrap, %c0, %v1_inc : i32
              %v1_flip = arith.xori %vp1, %c1 : i32
              %v1_parity = arith.select %v1_wrap, %v1_flip, %vp1 : i32
              scf.yield %k1_stage, %k1_parity, %v1_stage, %v1_parity : i32, i32, i32, i32
            }
            %v2_ep = arith.xori %lp#3, %c1 : i32
            "attn.mbarrier_wait"(%v_empty, %lp#2, %v2_ep) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
            "attn.mbarrier_expect_tx"(%v_full, %lp#2) {bytes = 32768 : i32} : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %v2_tile = "attn.stage"(%v_s, %lp#2) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
            "attn.tma_load"(%V, %b, %h_kv, %c0, %v2_tile, %v_full, %lp#2) : (memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, memref<128x128xbf16, #gpu.address_space<workgroup>>, memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %v2_inc = arith.addi %lp#2, %c1 : i32
            %v2_wrap = arith.cmpi eq, %v2_inc, %c2 : i32
            %v2_stage = arith.select %v2_wrap, %c0, %v2_inc : i32
            %v2_flip = arith.xori %lp#3, %c1 : i32
            %v2_parity = arith.select %v2_wrap, %v2_flip, %lp#3 : i32
            scf.yield %lp#0, %lp#1, %v2_stage, %v2_parity, %qp_next : i32, i32, i32, i32, i32
          } else {
            scf.yield %ks, %kp, %vs, %vp, %qp : i32, i32, i32, i32, i32
          }
          scf.yield %qi#0, %qi#1, %qi#2, %qi#3, %qi#4, %c0 : i32, i32, i32, i32, i32, i32
        }
      }
    } else {
      "attn.set_max_registers"() {count = 240 : i32, action = "increase"} : () -> ()
      %wg = arith.subi %warpgroup, %c1 : i32
      %pp_mine = arith.addi %wg, %c1 : i32
      %pp_other = arith.subi %c2, %wg : i32   // of two: barrier 2 for group 0, 1 for group 1
      %is_last_wg = arith.cmpi eq, %wg, %c1 : i32
      scf.if %is_last_wg {
        "attn.bar_arrive"(%c1) {threads = 256 : i32} : (i32) -> ()
      }
      %row_step = vector.step : vector<64xindex>
      %row_i32 = arith.index_cast %row_step : vector<64xindex> to vector<64xi32>
      %row_local = vector.shape_cast %row_i32 : vector<64xi32> to vector<64x1xi32>
      %col_step = vector.step : vector<128xindex>
      %col_i32 = arith.index_cast %col_step : vector<128xindex> to vector<128xi32>
      %col_local = vector.shape_cast %col_i32 : vector<128xi32> to vector<1x128xi32>
      %wg_row = arith.muli %wg, %c64 : i32
      %q_tile = "attn.stage"(%q_s, %wg) : (memref<2x64x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<64x128xbf16, #gpu.address_space<workgroup>>
      %cr:5 = scf.for %tile = %cta to %tiles step %ctas iter_args(%ks = %c0, %kp = %c0, %vs = %c0, %vp = %c0, %qp = %c0) -> (i32, i32, i32, i32, i32) : i32 {
        %t_bh = arith.remui %tile, %bh : i32
        %t_rev = arith.divui %tile, %bh : i32
        %t_last = arith.subi %q_tiles, %c1 : i32
        %qt = arith.subi %t_last, %t_rev : i32
        %b = arith.divui %t_bh, %heads : i32
        %h = arith.remui %t_bh, %heads : i32
        %h_kv = arith.divui %h, %ratio : i32
        %q0 = arith.muli %qt, %c128 : i32
        %q_end = arith.addi %q0, %c128 : i32
        %q_end_up = arith.addi %q_end, %c127 : i32
        %n_causal = arith.divui %q_end_up, %c128 : i32
        %n = arith.minsi %kv_blocks, %n_causal : i32
        %last = arith.subi %n, %c1 : i32
        %row0 = arith.addi %q0, %wg_row : i32
        %row0_v = vector.broadcast %row0 : i32 to vector<64x1xi32>
        %q_pos = arith.addi %row_local, %row0_v : vector<64x1xi32>
        %some = arith.cmpi sgt, %n, %c0 : i32
        %t:8 = scf.if %some -> (vector<64x128xf32>, vector<64x1xf32>, vector<64x4xf32>, i32, i32, i32, i32, i32) {
          "attn.mbarrier_wait"(%q_full, %wg, %qp) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
          "attn.mbarrier_wait"(%k_full, %ks, %kp) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
          %k0 = "attn.stage"(%k_s, %ks) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
          "attn.wgmma_fence"() : () -> ()
          %s0_async = "attn.wgmma"(%q_tile, %k0, %zero_s) {transpose_b} : (memref<64x128xbf16, #gpu.address_space<workgroup>>, memref<128x128xbf16, #gpu.address_space<workgroup>>, vector<64x128xf32>) -> vector<64x128xf32>
          "attn.wgmma_commit"() : () -> ()
          %s0 = "attn.wgmma_wait"(%s0_async) {pending = 0 : i32} : (vector<64x128xf32>) -> vector<64x128xf32>
          "attn.mbarrier_arrive"(%k_empty, %ks) : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
          %ka_inc = arith.addi %ks, %c1 : i32
          %ka_wrap = arith.cmpi eq, %ka_inc, %c2 : i32
          %ka_stage = arith.select %ka_wrap, %c0, %ka_inc : i32
          %ka_flip = arith.xori %kp, %c1 : i32
          %ka_parity = arith.select %ka_wrap, %ka_flip, %kp : i32
          %x0_k0 = arith.muli %last, %c128 : i32
          %x0_end = arith.addi %x0_k0, %c128 : i32
          %x0_over = arith.cmpi sgt, %x0_end, %kv_len : i32
          %x0_lastcol = arith.addi %x0_k0, %c127 : i32
          %x0_diag = arith.cmpi sgt, %x0_lastcol, %row0 : i32
          %x0_partial = arith.ori %x0_over, %x0_diag : i1
          %x0 = scf.if %x0_partial -> (vector<64x128xf32>) {
            %k0_col = vector.broadcast %x0_k0 : i32 to vector<1x128xi32>
            %kv_pos = arith.addi %col_local, %k0_col : vector<1x128xi32>
            %kv_len_col = vector.broadcast %kv_len : i32 to vector<1x128xi32>
            %in = arith.cmpi slt, %kv_pos, %kv_len_col : vector<1x128xi32>
            %qb = vector.broadcast %q_pos : vector<64x1xi32> to vector<64x128xi32>
            %kb = vector.broadcast %kv_pos : vector<1x128xi32> to vector<64x128xi32>
            %le = arith.cmpi sle, %kb, %qb : vector<64x128xi32>
            %inb = vector.broadcast %in : vector<1x128xi1> to vector<64x128xi1>
            %keep = arith.andi %le, %inb : vector<64x128xi1>
            %masked = arith.select %keep, %s0, %ninf_s : vector<64x128xi1>, vector<64x128xf32>
            scf.yield %masked : vector<64x128xf32>
          } else {
            scf.yield %s0 : vector<64x128xf32>
          }
          %f_rm = vector.multi_reduction <maxnumf>, %x0, %ninf_acc [1] : vector<64x128xf32> to vector<64xf32>
          %f_rmr = vector.shape_cast %f_rm : vector<64xf32> to vector<64x1xf32>
          %f_rm2 = "attn.mul_rp"(%f_rmr, %c_row) : (vector<64x1xf32>, vector<64x1xf32>) -> vector<64x1xf32>
          %f_m = arith.maxnumf %ninf_row, %f_rm2 : vector<64x1xf32>
          %f_none = arith.cmpf oeq, %f_m, %ninf_row : vector<64x1xf32>
          %f_ref = arith.select %f_none, %zero_row, %f_m : vector<64x1xi1>, vector<64x1xf32>
          %f_d = arith.subf %ninf_row, %f_ref : vector<64x1xf32>
          %f_alpha = math.exp2 %f_d : vector<64x1xf32>
          %f_raw = arith.divf %f_m, %c_row fastmath<contract,arcp> : vector<64x1xf32>   // reference maximum in raw units
          %f_lim = arith.addf %f_raw, %tau_row : vector<64x1xf32>
          %f_bits = arith.bitcast %f_lim : vector<64x1xf32> to vector<64x1xi32>
          %f_pos = arith.cmpf oge, %f_raw, %zero_row : vector<64x1xf32>
          %f_thr = arith.select %f_pos, %f_bits, %int_min_row : vector<64x1xi1>, vector<64x1xi32>
          %fe_neg = arith.negf %f_ref : vector<64x1xf32>
          %fe_negt = vector.broadcast %fe_neg : vector<64x1xf32> to vector<64x128xf32>
          %fe_e = math.fma %x0, %c_tile, %fe_negt : vector<64x128xf32>
          %fe_p = math.exp2 %fe_e : vector<64x128xf32>
          %fe_l = "attn.partial_sum"(%fe_p, %zero_l) : (vector<64x128xf32>, vector<64x4xf32>) -> vector<64x4xf32>
          %fe_p16 = arith.truncf %fe_p : vector<64x128xf32> to vector<64x128xbf16>
          %lp:9 = scf.for %i = %c1 to %n step %c1 iter_args(%acc = %zero_o, %m = %f_m, %thr = %f_thr, %l = %fe_l, %p = %fe_p16, %ks1 = %ka_stage, %kp1 = %ka_parity, %vs1 = %vs, %vp1 = %vp) -> (vector<64x128xf32>, vector<64x1xf32>, vector<64x1xi32>, vector<64x4xf32>, vector<64x128xbf16>, i32, i32, i32, i32) : i32 {
            "attn.mbarrier_wait"(%k_full, %ks1, %kp1) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
            "attn.bar_sync"(%pp_mine) {threads = 256 : i32} : (i32) -> ()
            %k = "attn.stage"(%k_s, %ks1) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
            %v = "attn.stage"(%v_s, %vs1) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
            "attn.wgmma_fence"() : () -> ()
            %s_async = "attn.wgmma"(%q_tile, %k, %zero_s) {transpose_b} : (memref<64x128xbf16, #gpu.address_space<workgroup>>, memref<128x128xbf16, #gpu.address_space<workgroup>>, vector<64x128xf32>) -> vector<64x128xf32>
            "attn.wgmma_commit"() : () -> ()
            "attn.mbarrier_wait"(%v_full, %vs1, %vp1) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
            %acc_async = "attn.wgmma"(%p, %v, %acc) : (vector<64x128xbf16>, memref<128x128xbf16, #gpu.address_space<workgroup>>, vector<64x128xf32>) -> vector<64x128xf32>
            "attn.wgmma_commit"() : () -> ()
            "attn.bar_arrive"(%pp_other) {threads = 256 : i32} : (i32) -> ()
            %s = "attn.wgmma_wait"(%s_async) {pending = 1 : i32} : (vector<64x128xf32>) -> vector<64x128xf32>
            "attn.mbarrier_arrive"(%k_empty, %ks1) : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %kb_inc = arith.addi %ks1, %c1 : i32
            %kb_wrap = arith.cmpi eq, %kb_inc, %c2 : i32
            %kb_stage = arith.select %kb_wrap, %c0, %kb_inc : i32
            %kb_flip = arith.xori %kp1, %c1 : i32
            %kb_parity = arith.select %kb_wrap, %kb_flip, %kp1 : i32
            %blk = arith.subi %last, %i : i32
            %x_k0 = arith.muli %blk, %c128 : i32
            %x_end = arith.addi %x_k0, %c128 : i32
            %x_over = arith.cmpi sgt, %x_end, %kv_len : i32
            %x_lastcol = arith.addi %x_k0, %c127 : i32
            %x_diag = arith.cmpi sgt, %x_lastcol, %row0 : i32
            %x_partial = arith.ori %x_over, %x_diag : i1
            %x = scf.if %x_partial -> (vector<64x128xf32>) {
              %k0_col = vector.broadcast %x_k0 : i32 to vector<1x128xi32>
              %kv_pos = arith.addi %col_local, %k0_col : vector<1x128xi32>
              %kv_len_col = vector.broadcast %kv_len : i32 to vector<1x128xi32>
              %in = arith.cmpi slt, %kv_pos, %kv_len_col : vector<1x128xi32>
              %qb = vector.broadcast %q_pos : vector<64x1xi32> to vector<64x128xi32>
              %kb = vector.broadcast %kv_pos : vector<1x128xi32> to vector<64x128xi32>
              %le = arith.cmpi sle, %kb, %qb : vector<64x128xi32>
              %inb = vector.broadcast %in : vector<1x128xi1> to vector<64x128xi1>
              %keep = arith.andi %le, %inb : vector<64x128xi1>
              %masked = arith.select %keep, %s, %ninf_s : vector<64x128xi1>, vector<64x128xf32>
              scf.yield %masked : vector<64x128xf32>
            } else {
              scf.yield %s : vector<64x128xf32>
            }
            // lazy softmax: has any lane seen a score above its threshold?
            %bits = arith.bitcast %x : vector<64x128xf32> to vector<64x128xi32>
            %top = "attn.partial_max"(%bits) : (vector<64x128xi32>) -> vector<64x4xi32>
            %thr_l = vector.broadcast %thr : vector<64x1xi32> to vector<64x4xi32>
            %above = arith.cmpi sgt, %top, %thr_l : vector<64x4xi32>
            %grow = "attn.vote_any"(%above) : (vector<64x4xi1>) -> i1
            %st:4 = scf.if %grow -> (vector<64x1xf32>, vector<64x1xi32>, vector<64x4xf32>, vector<64x1xf32>) {
              %g_rm = vector.multi_reduction <maxnumf>, %x, %ninf_acc [1] : vector<64x128xf32> to vector<64xf32>
              %g_rmr = vector.shape_cast %g_rm : vector<64xf32> to vector<64x1xf32>
              %g_rm2 = "attn.mul_rp"(%g_rmr, %c_row) : (vector<64x1xf32>, vector<64x1xf32>) -> vector<64x1xf32>
              %g_m = arith.maxnumf %m, %g_rm2 : vector<64x1xf32>
              %g_none = arith.cmpf oeq, %g_m, %ninf_row : vector<64x1xf32>
              %g_ref = arith.select %g_none, %zero_row, %g_m : vector<64x1xi1>, vector<64x1xf32>
              %g_d = arith.subf %m, %g_ref : vector<64x1xf32>
              %g_alpha = math.exp2 %g_d : vector<64x1xf32>
              %g_raw = arith.divf %g_m, %c_row fastmath<contract,arcp> : vector<64x1xf32>   // reference maximum in raw units
              %g_lim = arith.addf %g_raw, %tau_row : vector<64x1xf32>
              %g_bits = arith.bitcast %g_lim : vector<64x1xf32> to vector<64x1xi32>
              %g_pos = arith.cmpf oge, %g_raw, %zero_row : vector<64x1xf32>
              %g_thr = arith.select %g_pos, %g_bits, %int_min_row : vector<64x1xi1>, vector<64x1xi32>
              %g_al = vector.broadcast %g_alpha : vector<64x1xf32> to vector<64x4xf32>
              %g_l = arith.mulf %l, %g_al : vector<64x4xf32>
              scf.yield %g_m, %g_thr, %g_l, %g_alpha : vector<64x1xf32>, vector<64x1xi32>, vector<64x4xf32>, vector<64x1xf32>
            } else {
              scf.yield %m, %thr, %l, %one_row : vector<64x1xf32>, vector<64x1xi32>, vector<64x4xf32>, vector<64x1xf32>
            }
            %mnone = arith.cmpf oeq, %st#0, %ninf_row : vector<64x1xf32>
            %mref = arith.select %mnone, %zero_row, %st#0 : vector<64x1xi1>, vector<64x1xf32>
            %acc_done = "attn.wgmma_wait"(%acc_async) {pending = 0 : i32} : (vector<64x128xf32>) -> vector<64x128xf32>
            "attn.mbarrier_arrive"(%v_empty, %vs1) : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
            %vb_inc = arith.addi %vs1, %c1 : i32
            %vb_wrap = arith.cmpi eq, %vb_inc, %c2 : i32
            %vb_stage = arith.select %vb_wrap, %c0, %vb_inc : i32
            %vb_flip = arith.xori %vp1, %c1 : i32
            %vb_parity = arith.select %vb_wrap, %vb_flip, %vp1 : i32
            %pe_neg = arith.negf %mref : vector<64x1xf32>
            %pe_negt = vector.broadcast %pe_neg : vector<64x1xf32> to vector<64x128xf32>
            %pe_e = math.fma %x, %c_tile, %pe_negt : vector<64x128xf32>
            %pe_p = math.exp2 %pe_e : vector<64x128xf32>
            %pe_l = "attn.partial_sum"(%pe_p, %st#2) : (vector<64x128xf32>, vector<64x4xf32>) -> vector<64x4xf32>
            %pe_p16 = arith.truncf %pe_p : vector<64x128xf32> to vector<64x128xbf16>
            %acc_new = scf.if %grow -> (vector<64x128xf32>) {
              %al_o = vector.broadcast %st#3 : vector<64x1xf32> to vector<64x128xf32>
              %acc_r = arith.mulf %acc_done, %al_o : vector<64x128xf32>
              scf.yield %acc_r : vector<64x128xf32>
            } else {
              scf.yield %acc_done : vector<64x128xf32>
            }
            scf.yield %acc_new, %st#0, %st#1, %pe_l, %pe_p16, %kb_stage, %kb_parity, %vb_stage, %vb_parity : vector<64x128xf32>, vector<64x1xf32>, vector<64x1xi32>, vector<64x4xf32>, vector<64x128xbf16>, i32, i32, i32, i32
          }
          "attn.mbarrier_arrive"(%q_empty, %wg) : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
          "attn.mbarrier_wait"(%v_full, %lp#7, %lp#8) : (memref<2xi64, #gpu.address_space<workgroup>>, i32, i32) -> ()
          %v_last = "attn.stage"(%v_s, %lp#7) : (memref<2x128x128xbf16, #gpu.address_space<workgroup>>, i32) -> memref<128x128xbf16, #gpu.address_space<workgroup>>
          "attn.wgmma_fence"() : () -> ()
          %oa = "attn.wgmma"(%lp#4, %v_last, %lp#0) : (vector<64x128xbf16>, memref<128x128xbf16, #gpu.address_space<workgroup>>, vector<64x128xf32>) -> vector<64x128xf32>
          "attn.wgmma_commit"() : () -> ()
          %od = "attn.wgmma_wait"(%oa) {pending = 0 : i32} : (vector<64x128xf32>) -> vector<64x128xf32>
          "attn.mbarrier_arrive"(%v_empty, %lp#7) : (memref<2xi64, #gpu.address_space<workgroup>>, i32) -> ()
          %vc_inc = arith.addi %lp#7, %c1 : i32
          %vc_wrap = arith.cmpi eq, %vc_inc, %c2 : i32
          %vc_stage = arith.select %vc_wrap, %c0, %vc_inc : i32
          %vc_flip = arith.xori %lp#8, %c1 : i32
          %vc_parity = arith.select %vc_wrap, %vc_flip, %lp#8 : i32
          %qp_next = arith.xori %qp, %c1 : i32
          scf.yield %od, %lp#1, %lp#3, %lp#5, %lp#6, %vc_stage, %vc_parity, %qp_next : vector<64x128xf32>, vector<64x1xf32>, vector<64x4xf32>, i32, i32, i32, i32, i32
        } else {
          scf.yield %zero_o, %ninf_row, %zero_l, %ks, %kp, %vs, %vp, %qp : vector<64x128xf32>, vector<64x1xf32>, vector<64x4xf32>, i32, i32, i32, i32, i32
        }
        %ls = vector.multi_reduction <add>, %t#2, %zero_acc [1] : vector<64x4xf32> to vector<64xf32>
        %lrow = vector.shape_cast %ls : vector<64xf32> to vector<64x1xf32>
        %none = arith.cmpf oeq, %lrow, %zero_row : vector<64x1xf32>
        %inv0 = arith.divf %one_row, %lrow fastmath<contract,arcp> : vector<64x1xf32>
        %inv = arith.select %none, %zero_row, %inv0 : vector<64x1xi1>, vector<64x1xf32>
        %inv_t = vector.broadcast %inv : vector<64x1xf32> to vector<64x128xf32>
        %o = arith.mulf %t#0, %inv_t : vector<64x128xf32>
        %o16 = arith.truncf %o : vector<64x128xf32> to vector<64x128xbf16>
        "attn.store"(%o16, %O, %b, %h, %row0, %q_len) : (vector<64x128xbf16>, memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32) -> ()
        %log2l = math.log2 %lrow : vector<64x1xf32>
        %lse2 = arith.addf %t#1, %log2l : vector<64x1xf32>
        %lse0 = arith.mulf %lse2, %ln2_row : vector<64x1xf32>
        %lse = arith.select %none, %ninf_row, %lse0 : vector<64x1xi1>, vector<64x1xf32>
        "attn.store"(%lse, %LSE, %b, %h, %row0, %q_len) {optional} : (vector<64x1xf32>, memref<?x?x?xf32, strided<[?, ?, ?]>>, i32, i32, i32, i32) -> ()
        scf.yield %t#3, %t#4, %t#5, %t#6, %t#7 : i32, i32, i32, i32, i32
      }
    }
    return
  }
}
