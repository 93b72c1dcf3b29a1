// RUN: attnc --run-pass=tile %s | FileCheck %s
// A constant group divides the head number by itself; kv_heads is not asked.

// CHECK-LABEL: func.func @a(
// CHECK: %[[R:.*]] = arith.remui %{{.*}}, %arg6
// CHECK: %[[H:.*]] = "attn.warp_reduce"(%[[R]])
// CHECK: %[[GROUP:.*]] = arith.constant 4 : i32
// CHECK: %[[D:.*]] = arith.divui %[[H]], %[[GROUP]]
// CHECK: %[[KV:.*]] = "attn.warp_reduce"(%[[D]])
// CHECK: "attn.load"(%arg0, %{{.*}}, %[[H]],
// CHECK: "attn.load"(%arg1, %{{.*}}, %[[KV]],

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 4 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
