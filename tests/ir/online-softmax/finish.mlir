// RUN: attnc --run-pass=online-softmax %s | FileCheck %s
// Rows with l = 0 give O = 0 and LSE = -inf; O is selected, not multiplied, since the
// accumulator of such a row may hold NaN.

// CHECK-LABEL: func.func @finish(
// CHECK-SAME: %[[ACC:.*]]: vector<64x64xf32>, %[[M:.*]]: vector<64x1xf32>, %[[L:.*]]: vector<64x4xf32>
// CHECK: %[[SUM:.*]] = vector.multi_reduction <add>, %[[L]]
// CHECK: %[[ROW:.*]] = vector.shape_cast %[[SUM]]
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[ROW]]
// CHECK: arith.divf %{{.*}}, %[[ROW]] : vector<64x1xf32>
// CHECK: %[[O:.*]] = arith.select {{.*}} vector<64x64xf32>
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
