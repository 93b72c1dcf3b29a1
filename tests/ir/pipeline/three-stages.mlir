// RUN: attnc --run-pass=tile,online-softmax,fold-scale,pipeline %s | FileCheck %s
// Three stages: two blocks in front of the loop, one group may be in flight at the wait.

// CHECK-LABEL: func.func @a(
// CHECK-COUNT-2: scf.if
// CHECK: scf.for %[[I:[a-z0-9]+]] =
// CHECK-NEXT: "attn.wait_group"() {pending = 1 : i32}
// CHECK-NEXT: gpu.barrier
// CHECK: %[[NEXT:.*]] = arith.addi %[[I]], %c2
// CHECK: arith.remui %[[NEXT]], %c3
// CHECK: arith.remui %[[I]], %c3

!qk = memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"})
      attributes {attn.stages = 3 : i32} {
    %scale = arith.constant 0.088388346 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
