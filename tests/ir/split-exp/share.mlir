// RUN: attnc --run-pass=split-exp %s | FileCheck %s
// RUN: attnc --run-pass=split-exp %s -o %t.mlir && mlir-opt-22 --irdl-file=%irdl %t.mlir -o %t.again
// A quarter of the 8 units of 32 columns, evenly spread; degree 3 for bf16, 4 for f16.
// Row quantities and kernels without a share stay as they are.

// CHECK-LABEL: func.func @bf16(
// CHECK: math.exp2 %{{.*}} : vector<64x1xf32>
// CHECK: "attn.exp2_split"(%{{.*}}) {coefficients = array<f32: 1.000000e+00, {{[^,]*, [^,]*, [^,]*}}>, units = array<i32: 3, 7>}
// CHECK-NOT: math.exp2

// CHECK-LABEL: func.func @f16(
// CHECK: "attn.exp2_split"(%{{.*}}) {coefficients = array<f32: 1.000000e+00, {{[^,]*, [^,]*, [^,]*, [^,]*}}>, units = array<i32: 0, 1, 2, 3, 4, 5, 6, 7>}

// CHECK-LABEL: func.func @none(
// CHECK-NOT: attn.exp2_split
// CHECK: math.exp2 %{{.*}} : vector<64x32xf32>

#wg = #gpu.address_space<workgroup>
func.func @bf16(%x: vector<64x32xf32>, %d: vector<64x1xf32>, %l: vector<64x4xf32>)
    -> (vector<64x1xf32>, vector<64x4xf32>, vector<64x32xbf16>) attributes {attn.exp_poly = 0.25 : f32} {
  %alpha = math.exp2 %d : vector<64x1xf32>
  %p = math.exp2 %x : vector<64x32xf32>
  %sum = "attn.partial_sum"(%p, %l) : (vector<64x32xf32>, vector<64x4xf32>) -> vector<64x4xf32>
  %p16 = arith.truncf %p : vector<64x32xf32> to vector<64x32xbf16>
  return %alpha, %sum, %p16 : vector<64x1xf32>, vector<64x4xf32>, vector<64x32xbf16>
}
func.func @f16(%x: vector<64x32xf32>, %l: vector<64x4xf32>)
    -> (vector<64x4xf32>, vector<64x32xf16>) attributes {attn.exp_poly = 1.0 : f32} {
  %p = math.exp2 %x : vector<64x32xf32>
  %sum = "attn.partial_sum"(%p, %l) : (vector<64x32xf32>, vector<64x4xf32>) -> vector<64x4xf32>
  %p16 = arith.truncf %p : vector<64x32xf32> to vector<64x32xf16>
  return %sum, %p16 : vector<64x4xf32>, vector<64x32xf16>
}
func.func @none(%x: vector<64x32xf32>, %l: vector<64x4xf32>)
    -> (vector<64x4xf32>, vector<64x32xf16>) {
  %p = math.exp2 %x : vector<64x32xf32>
  %sum = "attn.partial_sum"(%p, %l) : (vector<64x32xf32>, vector<64x4xf32>) -> vector<64x4xf32>
  %p16 = arith.truncf %p : vector<64x32xf32> to vector<64x32xf16>
  return %sum, %p16 : vector<64x4xf32>, vector<64x32xf16>
}
