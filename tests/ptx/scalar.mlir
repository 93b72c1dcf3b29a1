// RUN: attnc --emit=ptx %s -o %t.ptx && FileCheck %s --input-file=%t.ptx --match-full-lines --strict-whitespace
// RUN: %if ptxas %{ ptxas -arch=sm_80 %t.ptx -o %t.80 && ptxas -arch=sm_90 %t.ptx -o %t.90 %}
// The whole text of a small kernel: out[i] = in[i] * n, one element a thread.
//      CHECK:.version 7.0
// CHECK-NEXT:.target sm_80
// CHECK-NEXT:.address_size 64
// CHECK-EMPTY:
// CHECK-NEXT:// summary kernel: 32 threads (1 warps), 0 bytes of shared memory
// CHECK-NEXT:// grid (postfix): q_len 32 ceildiv
// CHECK-NEXT:.visible .entry scale(
// CHECK-NEXT:    .param .s32 q_len,           // size:q_len
// CHECK-NEXT:    .param .u64 workspace_0_ptr, // workspace:0
// CHECK-NEXT:    .param .u64 workspace_1_ptr  // workspace:1
// CHECK-NEXT:)
// CHECK-NEXT:.maxntid 32, 1, 1
// CHECK-NEXT:.minnctapersm 1
// CHECK-NEXT:{
//      CHECK:    // ---- parameters and lane constants
// CHECK-NEXT:    ld.param.b32 %q_len, [q_len];
// CHECK-NEXT:    mov.u32 %cta, %ctaid.x;
// CHECK-NEXT:    mov.u32 %thread, %tid.x;
// CHECK-NEXT:    ld.param.b64 %workspace_0_ptr, [workspace_0_ptr];
// CHECK-NEXT:    cvta.to.global.u64 %workspace_0_, %workspace_0_ptr;
// CHECK-NEXT:    ld.param.b64 %workspace_1_ptr, [workspace_1_ptr];
// CHECK-NEXT:    cvta.to.global.u64 %workspace_1_, %workspace_1_ptr;
//      CHECK:    // ---- prologue
//      CHECK:    mul.lo.s32 %r0, %cta, 32;
//      CHECK:    add.s32 %r1, %r0, %thread;
//      CHECK:    setp.lt.s32 %p, %r1, %q_len;
//      CHECK:    @!%p bra endif_0;
//      CHECK:    mad.wide.s32 %rd0, %r1, 4, %workspace_0_;
//      CHECK:    ld.global.f32 %load, [%rd0];
//      CHECK:    cvt.rn.f32.s32 %f0, %q_len;
//      CHECK:    mul.rn.f32 %f1, %load, %f0;
//      CHECK:    mad.wide.s32 %rd1, %r1, 4, %workspace_1_;
// CHECK-NEXT:    st.global.f32 [%rd1], %f1;
// CHECK-NEXT:endif_0:
// CHECK-NEXT:    ret;
// CHECK-NEXT:}

module attributes {attn.target = "sm_80"} {
  func.func @scale(
      %n: i32 {attn.arg = "size:q_len"},
      %in: memref<?xf32> {attn.arg = "workspace:0", attn.workspace_bytes = ["q_len", "4", "mul"]},
      %out: memref<?xf32> {attn.arg = "workspace:1", attn.workspace_bytes = ["q_len", "4", "mul"]})
      attributes {attn.kernel = "summary", attn.warps = 1 : i32, attn.grid = ["q_len", "32", "ceildiv"]} {
    %c32 = arith.constant 32 : i32
    %b = gpu.block_id x
    %t = gpu.thread_id x
    %b32 = arith.index_cast %b : index to i32
    %t32 = arith.index_cast %t : index to i32
    %base = arith.muli %b32, %c32 : i32
    %i = arith.addi %base, %t32 : i32
    %inside = arith.cmpi slt, %i, %n : i32
    scf.if %inside {
      %at = arith.index_cast %i : i32 to index
      %x = memref.load %in[%at] : memref<?xf32>
      %f = arith.sitofp %n : i32 to f32
      %y = arith.mulf %x, %f : f32
      memref.store %y, %out[%at] : memref<?xf32>
    }
    return
  }
}
