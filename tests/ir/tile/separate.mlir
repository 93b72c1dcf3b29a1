// RUN: attnc --run-pass=tile %s | FileCheck %s
// q - kv + kv_len - 1 is (q + (kv_len - 1)) - kv: the row part stands in front of the loop,
// one tile operation is left in it.

// CHECK-LABEL: func.func @a(
// CHECK: name = "q"
// CHECK: %[[LAST:.*]] = vector.broadcast %{{.*}} : i32 to vector<128x1xi32>
// CHECK: %[[ROW:.*]] = arith.addi %[[LAST]], %{{.*}} : vector<128x1xi32>
// CHECK: %[[R:.*]] = vector.broadcast %[[ROW]]
// CHECK: scf.for
// CHECK: %[[C:.*]] = vector.broadcast %{{.*}} : vector<1x64xi32> to vector<128x64xi32>
// CHECK-NEXT: %[[D:.*]] = arith.subi %[[R]], %[[C]] : vector<128x64xi32>
// CHECK-NEXT: "attn.read"(%arg10, %[[D]])

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
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32, score = @a.score}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
  func.func private @a.score(%s: f32, %b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32, %bias: memref<?xf32, strided<[?]>>) -> f32 {
    %d = arith.subi %q, %kv : i32
    %e = arith.addi %d, %kv_len : i32
    %c1 = arith.constant 1 : i32
    %i = arith.subi %e, %c1 : i32
    %x = "attn.read"(%bias, %i) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0>} : (memref<?xf32, strided<[?]>>, i32) -> f32
    %r = arith.addf %s, %x fastmath<contract> : f32
    return %r : f32
  }
}
