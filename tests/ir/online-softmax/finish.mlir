// RUN: attnc --run-pass=online-softmax %s | FileCheck %s
// Rows with l = 0 give O = 0 and LSE = -inf; the accumulator of such a row, which may hold
// NaN, is replaced where a warp has one.

// CHECK-LABEL: func.func @finish(
// CHECK-SAME: %[[ACC:.*]]: vector<64x64xf32>, %[[M:.*]]: vector<64x1xf32>, %[[L:.*]]: vector<64x4xf32>
// CHECK: %[[SUM:.*]] = vector.multi_reduction <add>, %[[L]]
// CHECK: %[[ROW:.*]] = vector.shape_cast %[[SUM]]
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[ROW]]
// CHECK: %[[ANY:.*]] = "attn.vote_any"(%[[NONE]])
// CHECK: %[[KEPT:.*]] = scf.if %[[ANY]] -> (vector<64x64xf32>) {
// CHECK: arith.select {{.*}} vector<64x64xf32>
// CHECK: } else {
// CHECK: arith.divf %{{.*}}, %[[ROW]] fastmath<contract> : vector<64x1xf32>
// CHECK: %[[INV:.*]] = arith.select %[[NONE]]
// CHECK: %[[O:.*]] = arith.mulf %[[KEPT]]
// CHECK: %[[LOG:.*]] = math.log2 %[[ROW]]
// CHECK: arith.addf %[[M]], %[[LOG]]
// CHECK: arith.constant dense<0.693147182>
// CHECK: %[[LSE:.*]] = arith.select %[[NONE]]
// CHECK: return %[[O]], %[[LSE]]

func.func @finish(%acc: vector<64x64xf32>, %m: vector<64x1xf32>, %l: vector<64x4xf32>)
    -> (vector<64x64xf32>, vector<64x1xf32>) {
  %r:2 = "attn.softmax_finish"(%acc, %m, %l)
      : (vector<64x64xf32>, vector<64x1xf32>, vector<64x4xf32>) -> (vector<64x64xf32>, vector<64x1xf32>)
  return %r#0, %r#1 : vector<64x64xf32>, vector<64x1xf32>
}
