extern "C" __device__ float decay(int distance) { return -0.5f * distance; }
