// RUN: attnc --run-pass=tile %s | FileCheck %s
// A causal mask: the loop runs from the block of the last attended key down to the
// first, classification is inlined and the mask stands in the partial arm only.

// CHECK-LABEL: func.func @a(
// CHECK: scf.for %[[I:.*]] = %c0{{.*}} to %[[N:[0-9]+]]
// CHECK: %[[BLOCK:.*]] = arith.subi %{{.*}}, %[[I]]
// CHECK: arith.cmpi ne
// CHECK: %[[PARTIAL:.*]] = arith.ori
// CHECK: %[[S:.*]] = arith.mulf
// CHECK-NOT: arith.cmpi sle{{.*}}vector
// CHECK: scf.if %[[PARTIAL]]
// CHECK: arith.cmpi slt{{.*}}vector<1x64xi32>
// CHECK: arith.cmpi sle{{.*}}vector<128x64xi32>
// CHECK: %[[KEEP:.*]] = arith.andi
// CHECK: arith.select %[[KEEP]], %[[S]]
// CHECK: else
// CHECK: scf.yield %[[S]]
// CHECK-NOT: func.func

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {classify = @a.classify, dense, group = 0 : i32, kv_bounds = @a.kv_bounds, mask = @a.mask}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
  func.func private @a.mask(%b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> i1 {
    %r = arith.cmpi sle, %kv, %q : i32
    return %r : i1
  }
  func.func private @a.classify(%b: i32, %h: i32, %h_kv: i32, %q0: i32, %q1: i32, %k0: i32, %k1: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> (i32, i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %all = arith.cmpi sle, %k1, %q0 : i32
    %some = arith.cmpi sle, %k0, %q1 : i32
    %x = arith.select %some, %c1, %c0 : i32
    %r = arith.select %all, %c2, %x : i32
    return %r, %c0 : i32, i32
  }
  func.func private @a.kv_bounds(%b: i32, %h: i32, %h_kv: i32, %q0: i32, %q1: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> (i32, i32) {
    %c0 = arith.constant 0 : i32
    return %c0, %q1 : i32, i32
  }
}
