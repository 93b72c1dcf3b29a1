// RUN: attnc --run-pass=tile %s | FileCheck %s
// Shapes decide where code goes: slopes[h] and what is made of it once per CTA, doc[b, q]
// once per row, doc[b, kv] once per key block and, being needed by the mask alone, in the
// partial arm.

// CHECK-LABEL: func.func @a(
// CHECK-DAG: %[[SLOPE:.*]] = "attn.read"(%arg10, {{.*}}) {{.*}} -> f32
// CHECK-DAG: math.exp2 %[[SLOPE]] : f32
// CHECK-DAG: %[[ROWS:.*]] = "attn.read"(%arg11, {{.*}}vector<128x1xi32>) -> vector<128x1xi32>
// CHECK-DAG: arith.muli {{.*}} : vector<128x1xi32>
// CHECK: scf.for
// CHECK-NOT: attn.read
// CHECK: scf.if
// CHECK: "attn.read"(%arg11, {{.*}}vector<1x64xi32>) -> vector<1x64xi32>
// CHECK-NOT: attn.read
// CHECK: "attn.softmax_step"

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"},
      %slopes: memref<?xf32, strided<[?]>> {attn.arg = "tensor:slopes"},
      %doc: memref<?x?xi32, strided<[?, ?]>> {attn.arg = "tensor:doc"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32, mask = @a.mask, score = @a.score}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
  func.func private @a.score(%s: f32, %b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32, %slopes: memref<?xf32, strided<[?]>>, %doc: memref<?x?xi32, strided<[?, ?]>>) -> f32 {
    %slope = "attn.read"(%slopes, %h) {operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0>} : (memref<?xf32, strided<[?]>>, i32) -> f32
    %steep = math.exp2 %slope : f32
    %c3 = arith.constant 3 : i32
    %q3 = arith.muli %q, %c3 : i32
    %d = arith.subi %kv, %q3 : i32
    %f = arith.sitofp %d : i32 to f32
    %bias = arith.mulf %steep, %f : f32
    %r = arith.addf %s, %bias fastmath<contract> : f32
    return %r : f32
  }
  func.func private @a.mask(%b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32, %slopes: memref<?xf32, strided<[?]>>, %doc: memref<?x?xi32, strided<[?, ?]>>) -> i1 {
    %dq = "attn.read"(%doc, %b, %q) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0>} : (memref<?x?xi32, strided<[?, ?]>>, i32, i32) -> i32
    %dk = "attn.read"(%doc, %b, %kv) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0>} : (memref<?x?xi32, strided<[?, ?]>>, i32, i32) -> i32
    %r = arith.cmpi eq, %dq, %dk : i32
    return %r : i1
  }
}
