// RUN: attnc --run-pass=online-softmax %s | FileCheck %s
// One step: the bound is rounded up so that P <= 1; the reference is finite, so nothing is
// tested before it is subtracted.

// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[ACC:.*]]: vector<64x64xf32>, %[[M:.*]]: vector<64x1xf32>, %[[L:.*]]: vector<64x4xf32>, %[[S:.*]]: vector<64x32xf32>, %[[V:.*]]: memref
// CHECK: %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[S]]
// CHECK: %[[ROW:.*]] = vector.shape_cast %[[MAX]]
// CHECK: %[[LOG2E:.*]] = arith.constant dense<1.44269502> : vector<64x1xf32>
// CHECK: %[[UP:.*]] = "attn.mul_rp"(%[[ROW]], %[[LOG2E]])
// CHECK: %[[NEW:.*]] = arith.maxnumf %[[M]], %[[UP]]
// CHECK-NOT: arith.cmpf
// CHECK: %[[D:.*]] = arith.subf %[[M]], %[[NEW]]
// CHECK: %[[ALPHA:.*]] = math.exp2 %[[D]]
// CHECK: %[[E:.*]] = math.fma %[[S]]
// CHECK: %[[P:.*]] = math.exp2 %[[E]]
// CHECK: %[[SUM:.*]] = "attn.partial_sum"(%[[P]]
// CHECK: %[[P16:.*]] = arith.truncf %[[P]] : vector<64x32xf32> to vector<64x32xf16>
// CHECK: %[[O:.*]] = "attn.dot"(%[[P16]], %[[V]]
// CHECK: return %[[O]], %[[NEW]], %[[SUM]]

#wg = #gpu.address_space<workgroup>
func.func @step(%acc: vector<64x64xf32>, %m: vector<64x1xf32>, %l: vector<64x4xf32>,
                %s: vector<64x32xf32>, %v: memref<32x64xf16, #wg>)
    -> (vector<64x64xf32>, vector<64x1xf32>, vector<64x4xf32>) {
  %r:3 = "attn.softmax_step"(%acc, %m, %l, %s, %v)
      : (vector<64x64xf32>, vector<64x1xf32>, vector<64x4xf32>, vector<64x32xf32>, memref<32x64xf16, #wg>)
      -> (vector<64x64xf32>, vector<64x1xf32>, vector<64x4xf32>)
  return %r#0, %r#1, %r#2 : vector<64x64xf32>, vector<64x1xf32>, vector<64x4xf32>
}
