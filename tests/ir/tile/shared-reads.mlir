// RUN: attnc --run-pass=tile %s | FileCheck %s
// Score and mask read the same element of a row: it is read once.

// CHECK-LABEL: func.func @a(
// CHECK: "attn.read"(%arg10, {{.*}}vector<128x1xi32>)
// CHECK-NOT: "attn.read"

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"},
      %bias: memref<?xf32, strided<[?]>> {attn.arg = "tensor:bias"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32, mask = @a.mask, score = @a.score}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
  func.func private @a.score(%s: f32, %b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32, %bias: memref<?xf32, strided<[?]>>) -> f32 {
    %x = "attn.read"(%bias, %q) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0>} : (memref<?xf32, strided<[?]>>, i32) -> f32
    %r = arith.addf %s, %x fastmath<contract> : f32
    return %r : f32
  }
  func.func private @a.mask(%b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32, %bias: memref<?xf32, strided<[?]>>) -> i1 {
    %x = "attn.read"(%bias, %q) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0>} : (memref<?xf32, strided<[?]>>, i32) -> f32
    %zero = arith.constant 0.0 : f32
    %r = arith.cmpf ogt, %x, %zero : f32
    return %r : i1
  }
}
