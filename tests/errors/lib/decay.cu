// float decay(int) is only mentioned here
extern "C" __device__ float decay(int d) { return exp2f(-0.01f * d); }
extern "C" __device__ bool even(int a, const float b) { return a % 2 == 0 && b > 0.0f; }
extern "C" int host(int a) { return a; }
