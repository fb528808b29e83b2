#include "ops/foreign/foreign_op.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace bz::ops::foreign {
namespace {

constexpr std::byte kNan{0xFF};  // NaN in every float type when repeated

struct Run {
  std::vector<std::byte> out;  // [N] rows of row_bytes
  size_t written = SIZE_MAX;   // index of an unowned region that the kernel wrote to
};

size_t bytes_of_row(const ZeroRowsParams& out) { return static_cast<size_t>(row_bytes(out.out.dtype, out.out.cols)); }

std::vector<std::byte> fetch(device::Device& device, const void* from, size_t bytes) {
  std::vector<std::byte> host(bytes);
  device.copy_to_host(host.data(), from, bytes);
  return host;
}

Run run_with(device::Device& device, device::Stream& stream, const OpTable& ops, const std::function<void()>& kernel,
             const PoisonTrial& trial, std::byte fill) {
  for (const PoisonTrial::Region& r : trial.unowned) {
    const std::vector<std::byte> bytes(r.bytes, fill);
    device.copy_to_device(r.data, bytes.data(), r.bytes);
  }
  const TensorRef& t = trial.out.out;
  const size_t row = bytes_of_row(trial.out), stride = static_cast<size_t>(row_bytes(t.dtype, t.row_stride));
  const std::vector<std::byte> poison(row, kNan);
  auto* data = static_cast<std::byte*>(t.data);
  for (size_t n = 0; n < static_cast<size_t>(t.rows); ++n) device.copy_to_device(data + n * stride, poison.data(), row);
  kernel();
  ops.zero_rows(stream, trial.out);
  stream.synchronize();
  Run run;
  for (size_t n = 0; n < static_cast<size_t>(t.rows); ++n) {
    const auto bytes = fetch(device, data + n * stride, row);
    run.out.insert(run.out.end(), bytes.begin(), bytes.end());
  }
  for (size_t i = 0; i < trial.unowned.size() && run.written == SIZE_MAX; ++i) {
    const auto bytes = fetch(device, trial.unowned[i].data, trial.unowned[i].bytes);
    if (!std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == fill; })) run.written = i;
  }
  return run;
}

bool has_nan(const std::byte* row, size_t bytes, DType dtype) {
  const size_t size = static_cast<size_t>(dtype_info(dtype).block_bytes);
  for (size_t i = 0; i + size <= bytes; i += size) {
    if (dtype == DType::kF32) {
      float f;
      std::memcpy(&f, row + i, sizeof(f));
      if (std::isnan(f)) return true;
    } else if (dtype == DType::kF16 || dtype == DType::kBF16) {
      uint16_t h;
      std::memcpy(&h, row + i, sizeof(h));
      if (std::isnan(dtype == DType::kF16 ? f16_to_f32(h) : bf16_to_f32(h))) return true;
    }
  }
  return false;
}

// Which rows of out belong to a batch row that is not empty.
std::vector<bool> live_rows(device::Device& device, const PoisonTrial& trial) {
  const auto n = static_cast<size_t>(trial.out.out.rows);
  std::vector<int32_t> seq_len(static_cast<size_t>(trial.num_rows)), token_row(n);
  device.copy_to_host(seq_len.data(), trial.out.seq_len, seq_len.size() * sizeof(int32_t));
  if (trial.out.token_row != nullptr) {
    device.copy_to_host(token_row.data(), trial.out.token_row, n * sizeof(int32_t));
  } else {
    for (size_t i = 0; i < n; ++i) token_row[i] = static_cast<int32_t>(i);
  }
  std::vector<bool> live(n);
  for (size_t i = 0; i < n; ++i) {
    BZ_CHECK_LT(token_row[i], trial.num_rows);
    live[i] = token_row[i] >= 0 && seq_len[static_cast<size_t>(token_row[i])] > 0;
  }
  return live;
}

}  // namespace

Status poison_test(device::Device& device, device::Stream& stream, const OpTable& ops, std::string_view name,
                   const std::function<void()>& kernel, const PoisonTrial& trial) {
  const std::vector<bool> live = live_rows(device, trial);
  BZ_CHECK_MSG(std::count(live.begin(), live.end(), true) > 0 && std::count(live.begin(), live.end(), false) > 0,
               "a poison trial needs live and padded rows");
  Run runs[3];
  const std::byte fills[] = {std::byte{0}, std::byte{0}, kNan};
  for (int i = 0; i < 3; ++i) {
    runs[i] = run_with(device, stream, ops, kernel, trial, fills[i]);
    if (runs[i].written != SIZE_MAX) {
      return internal_error("{} writes into memory that no request owns (region {}); it cannot be used", name,
                            runs[i].written);
    }
  }
  const size_t row = bytes_of_row(trial.out);
  const std::vector<std::byte> zeros(row);
  for (size_t n = 0; n < live.size(); ++n) {
    const std::byte* at[3];
    for (int i = 0; i < 3; ++i) at[i] = runs[i].out.data() + n * row;
    const auto same = [&](int i) { return std::memcmp(at[0], at[i], row) == 0; };
    if (!live[n]) {
      if (std::memcmp(at[2], zeros.data(), row) != 0) {
        return internal_error("{} leaves something in padded row {} after zero_rows; it cannot be used", name, n);
      }
    } else if (!same(1)) {
      return internal_error("{} gives row {} other bits from run to run; it cannot be used", name, n);
    } else if (!same(2)) {
      return internal_error("{} lets bytes that no request owns into row {}; it cannot be used", name, n);
    } else if (has_nan(at[0], row, trial.out.out.dtype)) {
      return internal_error("{} writes NaN into live row {}, or does not write it; it cannot be used", name, n);
    }
  }
  return ok_status();
}

}  // namespace bz::ops::foreign
