#include "ops/cuda/attention_f32.cu"
