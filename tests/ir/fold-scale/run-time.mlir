// RUN: attnc --run-pass=tile,online-softmax,fold-scale %s | FileCheck %s
// A scale known at launch may have either sign: it stays.

// CHECK-LABEL: func.func @a(
// CHECK-DAG: %[[C:.*]] = arith.constant dense<1.44269502> : vector<128x1xf32>
// CHECK: %[[RAW:.*]] = "attn.dot"({{.*}}) {transpose_b}
// CHECK: arith.mulf %[[RAW]]
// CHECK: "attn.mul_rp"(%{{.*}}, %[[C]])

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"},
      %p: f32 {attn.arg = "param:p"}) {
    %scale = math.sqrt %p : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
