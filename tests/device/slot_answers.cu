#include "device/slot_answers.h"

#include "device/cuda/cuda_fault.h"

namespace bz::test {
namespace {

// A cta a case.
__global__ void slot_kernel(const SlotCase* cases, SlotArrays arrays, SlotAnswers* answers) {
  const SlotCase& c = cases[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < c.count; i += static_cast<int>(blockDim.x)) {
    answers[c.first_answer + i] = slot_answers(c, arrays, c.begin + i);
  }
}

template <class T>
T* on_device(const std::vector<T>& v) {
  T* p = nullptr;
  BZ_CUDA_CHECK(cudaMalloc(&p, v.size() * sizeof(T)));
  BZ_CUDA_CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

}  // namespace

void slot_answers_on_device(const std::vector<SlotCase>& cases, const std::vector<kv::BlockId>& cells,
                            const std::vector<int32_t>& widths, const std::vector<int32_t>& firsts,
                            std::vector<SlotAnswers>& answers) {
  SlotCase* c = on_device(cases);
  kv::BlockId* cell = on_device(cells);
  int32_t *width = on_device(widths), *first = on_device(firsts);
  SlotAnswers* a = on_device(answers);
  slot_kernel<<<static_cast<unsigned>(cases.size()), 64>>>(c, SlotArrays{cell, width, first}, a);
  BZ_CUDA_CHECK(cudaGetLastError());
  BZ_CUDA_CHECK(cudaMemcpy(answers.data(), a, answers.size() * sizeof(SlotAnswers), cudaMemcpyDeviceToHost));
  for (void* p : {static_cast<void*>(c), static_cast<void*>(cell), static_cast<void*>(width), static_cast<void*>(first),
                  static_cast<void*>(a)}) {
    BZ_CUDA_CHECK(cudaFree(p));
  }
}

}  // namespace bz::test
