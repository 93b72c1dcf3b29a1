// RUN: attnc --run-pass=tile,online-softmax,fold-scale %s | FileCheck %s
// s + bias: scale and addition are one FMA; a sum has no factor to fold.  The bias itself
// is computed as written.

// CHECK-LABEL: func.func @a(
// CHECK-DAG: %[[C:.*]] = arith.constant dense<1.44269502> : vector<128x1xf32>
// CHECK: %[[RAW:.*]] = "attn.dot"({{.*}}) {transpose_b}
// CHECK: %[[BIAS:.*]] = arith.mulf {{.*}}: vector<128x64xf32>
// CHECK: math.fma %[[RAW]], %{{.*}}, %[[BIAS]] fastmath<contract>
// CHECK: "attn.mul_rp"(%{{.*}}, %[[C]])

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32, score = @a.score}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
  func.func private @a.score(%s: f32, %b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> f32 {
    %d = arith.muli %kv, %q : i32
    %f = arith.sitofp %d : i32 to f32
    %c = arith.constant 0.3 : f32
    %bias = arith.mulf %c, %f : f32
    %r = arith.addf %s, %bias fastmath<contract> : f32
    return %r : f32
  }
}
