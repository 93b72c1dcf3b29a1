// RUN: attnc --run-pass=tile,online-softmax,fold-scale %s | FileCheck %s
// A positive constant scale disappears from the loop, also behind the mask: maxima are
// taken on raw scores and c = 0.125 * log2(e).

// CHECK-LABEL: func.func @a(
// CHECK: %[[RAW:.*]] = "attn.dot"({{.*}}) {transpose_b}
// CHECK-NOT: arith.mulf {{.*}}vector<128x64xf32>
// CHECK: %[[X:.*]] = scf.if
// CHECK: arith.select %{{.*}}, %[[RAW]]
// CHECK: scf.yield %[[RAW]]
// CHECK: vector.multi_reduction <maxnumf>, %[[X]]
// CHECK: dense<0.180336878> : vector<128x1xf32>
// CHECK: attn.mul_rp
// CHECK: dense<0.180336878> : vector<128x64xf32>
// CHECK: math.fma %[[X]]

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
