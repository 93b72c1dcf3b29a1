// RUN: attnc --run-pass=tile %s | FileCheck %s
// f32(kv - q) is the difference of a column and a row that are converted by themselves, f32(|kv - q|)
// its size; with a param in the sum, which may be anything, the integers are kept.

// CHECK-LABEL: func.func @a(
// CHECK: arith.sitofp %{{.*}} : vector<128x1xi32> to vector<128x1xf32>
// CHECK: scf.for
// CHECK: %[[C:.*]] = arith.sitofp %{{.*}} : vector<1x64xi32> to vector<1x64xf32>
// CHECK: %[[D:.*]] = arith.subf %{{.*}} : vector<128x64xf32>
// CHECK: math.absf %[[D]]
// CHECK: %[[P:.*]] = arith.{{addi|subi}} {{.*}} : vector<128x64xi32>
// CHECK: arith.sitofp %[[P]] : vector<128x64xi32>

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"},
      %p: i32 {attn.arg = "param:p"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32, score = @a.score}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
  func.func private @a.score(%s: f32, %b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32, %p: i32) -> f32 {
    %d = arith.subi %kv, %q : i32
    %a = math.absi %d : i32
    %f = arith.sitofp %a : i32 to f32
    %e = arith.addi %d, %p : i32
    %g = arith.sitofp %e : i32 to f32
    %x = arith.addf %s, %f fastmath<contract> : f32
    %r = arith.addf %x, %g fastmath<contract> : f32
    return %r : f32
  }
}
