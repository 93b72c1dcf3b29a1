// RUN: attnc --run-pass=tile,online-softmax,fold-scale,pipeline %s | FileCheck %s
// Two stages: one group and one barrier an iteration, the copy of block i+1 is issued
// before block i is used.

// CHECK-LABEL: func.func @a(
// CHECK-SAME: attn.shared_bytes = 98304 : i32
// CHECK-DAG: %[[KS:.*]] = "attn.shared"() {byte_offset = 32768 : i32, name = "k", pitch = 16 : i32, swizzle_bits = 3 : i32, swizzle_shift = 0 : i32} : () -> memref<2x64x128xbf16
// CHECK-DAG: %[[VS:.*]] = "attn.shared"() {byte_offset = 65536 : i32, name = "v", pitch = 16 : i32, swizzle_bits = 3 : i32, swizzle_shift = 0 : i32} : () -> memref<2x64x128xbf16
// CHECK: %[[Q:.*]] = "attn.shared"() {byte_offset = 0 : i32, name = "q"
// CHECK: "attn.copy_async"(%arg0{{.*}}%[[Q]])
// CHECK: "attn.commit_group"
// CHECK: scf.if
// CHECK: "attn.copy_async"(%arg1
// CHECK: "attn.copy_async"(%arg2
// CHECK: "attn.commit_group"
// CHECK: scf.for
// CHECK-NEXT: "attn.wait_group"() {pending = 0 : i32}
// CHECK-NEXT: gpu.barrier
// CHECK: scf.if
// CHECK: "attn.stage"(%[[KS]]
// CHECK: "attn.copy_async"(%arg1
// CHECK: "attn.stage"(%[[VS]]
// CHECK: "attn.copy_async"(%arg2
// CHECK: "attn.commit_group"
// CHECK-NOT: gpu.barrier
// CHECK: "attn.dot"(%[[Q]], {{.*}}) {transpose_b}
// CHECK-NOT: gpu.barrier
// CHECK: scf.yield {{.*}}vector<128x128xf32>
// CHECK-NOT: attn.load

!qk = memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x128xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"})
      attributes {attn.stages = 2 : i32} {
    %scale = arith.constant 0.088388346 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
