// RUN: attnc --run-pass=tile,online-softmax,fold-scale,pipeline %s | FileCheck %s
// Q in registers: read once before the loop, while the first K and V are in flight.

// CHECK-LABEL: func.func @a(
// CHECK-SAME: attn.q_registers
// CHECK: "attn.copy_async"(%arg0
// CHECK: "attn.copy_async"(%arg1
// CHECK: "attn.wait_group"() {pending = 1 : i32}
// CHECK-NEXT: gpu.barrier
// CHECK-NEXT: %[[QF:.*]] = "attn.fragments"
// CHECK: scf.for
// CHECK: "attn.dot"(%[[QF]], {{.*}}vector<128x64xbf16>

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
