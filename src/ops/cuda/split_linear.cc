#include "ops/cuda/split_linear.h"

#include "base/check.h"
#include "ops/cuda/products.h"

namespace bz::ops::cuda {
namespace {

// Calls fn(slice) for every slice in order, until one says no.
template <class Fn>
bool for_each_slice(const LinearParams& p, DType weight, Fn&& fn) {
  const int32_t max_rows = slice_rows(p, weight);
  for (LinearSlice slice; next_slice(p, max_rows, slice);) {
    if (!fn(take_slice(p, weight, slice))) return false;
  }
  return true;
}

// Calls fn(shape, operands) for every product of a slice, until one says no: one of the rows in the scratch, or one of
// each part's weights where they lie.
template <class Fn>
bool for_each_product(const LinearParams& slice, DType weight, const SplitScratch& scratch, Fn&& fn) {
  const SplitForm form = split_form(weight);
  const SliceColumns columns = slice_columns(slice);
  ProductShape shape{columns.total, form.stacked * slice.tokens, form.terms * slice.k, columns.total};
  if (form.terms > 1) return fn(shape, ProductOperands{scratch.weights, scratch.x, scratch.y, scratch.workspace});
  for (int i = 0; i < slice.num_parts; ++i) {
    const LinearPart& part = slice.parts[i];
    shape.m = part.n;
    if (part.n == 0) continue;
    if (!fn(shape, ProductOperands{part.weight, scratch.x, scratch.y + columns.begin[i], scratch.workspace})) {
      return false;
    }
  }
  return true;
}

bool can_run(Products& products, device::cuda::CudaStream& stream, DType weight, const LinearParams& p,
             const SplitScratch& scratch) {
  return for_each_slice(p, weight, [&](const LinearParams& slice) {
    return for_each_product(slice, weight, scratch, [&](const ProductShape& shape, const ProductOperands& operands) {
      return products.can(stream, shape, operands);
    });
  });
}

void split_x(device::Stream& stream, const char* op, DType weight, const LinearParams& p, const SplitScratch& scratch) {
  SplitXParams s;
  s.x = p.x, s.x_stride = p.x_stride;
  s.tokens = p.tokens, s.k = p.k;
  s.norm_weight = p.norm_weight, s.norm_eps = p.norm_eps;
  s.num_valid = p.num_valid;
  s.out = scratch.x;
  s.form = split_form(weight);
  launch_split_x(stream, op, s);
}

void split_weights(device::Stream& stream, const char* op, DType weight, const LinearParams& slice,
                   const SplitScratch& scratch) {
  SplitWeightsParams w;
  for (int i = 0; i < slice.num_parts; ++i) {
    w.weight[i] = slice.parts[i].weight;
    w.n[i] = slice.parts[i].n;
  }
  w.columns = slice_columns(slice);
  w.k = slice.k;
  w.out = scratch.weights;
  launch_split_weights(stream, op, weight, w);
}

}  // namespace

bool run_split_linear(device::Stream& stream, const char* op, DType weight, const LinearParams& p, void* scratch) {
  auto& s = static_cast<device::cuda::CudaStream&>(stream);
  Products* products = Products::of(s);
  const SplitScratch space = split_scratch(scratch, p.tokens, p.k);
  if (products == nullptr || !can_run(*products, s, weight, p, space)) return false;
  split_x(stream, op, weight, p, space);
  for_each_slice(p, weight, [&](const LinearParams& slice) {
    if (split_form(weight).terms > 1) split_weights(stream, op, weight, slice, space);
    for_each_product(slice, weight, space, [&](const ProductShape& shape, const ProductOperands& operands) {
      products->enqueue(s, op, shape, operands);
      return true;
    });
    launch_finish(stream, op, {slice, slice_columns(slice), space.y, split_form(weight).stacked});
    return true;
  });
  return true;
}

void prepare_split_linear(device::Stream& stream, DType weight, const LinearParams& p, void* scratch) {
  auto& s = static_cast<device::cuda::CudaStream&>(stream);
  Products* products = Products::of(s);
  if (products != nullptr) can_run(*products, s, weight, p, split_scratch(scratch, p.tokens, p.k));
}

}  // namespace bz::ops::cuda
