// RUN: attnc --run-pass=tile,online-softmax,fold-scale,pipeline %s | FileCheck %s
// One stage: V is copied during Q*K, the next K during the softmax.

// CHECK-LABEL: func.func @a(
// CHECK: "attn.copy_async"(%arg0
// CHECK: "attn.commit_group"
// CHECK: scf.if
// CHECK: "attn.copy_async"(%arg1
// CHECK-NOT: "attn.copy_async"(%arg2
// CHECK: scf.for
// CHECK: "attn.wait_group"() {pending = 0 : i32}
// CHECK-NEXT: gpu.barrier
// CHECK: "attn.copy_async"(%arg2
// CHECK-NEXT: "attn.commit_group"
// CHECK: "attn.dot"({{.*}}) {transpose_b}
// CHECK-NEXT: "attn.wait_group"() {pending = 0 : i32}
// CHECK-NEXT: gpu.barrier
// CHECK: scf.if
// CHECK: "attn.copy_async"(%arg1
// CHECK: "attn.commit_group"
// CHECK: attn.mul_rp
// CHECK: "attn.dot"

!qk = memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"})
      attributes {attn.stages = 1 : i32} {
    %scale = arith.constant 0.088388346 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
