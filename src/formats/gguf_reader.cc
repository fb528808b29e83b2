#include "formats/gguf_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace bz::formats {
namespace {
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxKeyBytes = 65535;                 // the specification's limit
constexpr uint64_t kMaxTensorNameBytes = 255;            // the specification says 64; some writers go past it
constexpr uint64_t kMinMetadataBytes = 8 + 4 + 1;        // key length, type, the smallest value
constexpr uint64_t kMinTensorInfoBytes = 8 + 4 + 4 + 8;  // name length, dimensions, type, offset
constexpr uint64_t kMaxAlignment = 1u << 20;
constexpr int kMaxArrayDepth = 4;
}  // namespace

Status GgufReader::truncated(std::string_view what) const {
  return invalid_argument("{}: truncated at byte {} of {}, inside {}; download it again", file_.name_, at_,
                          bytes_.size(), what);
}

template <class T>
Status GgufReader::read_number(std::string_view what, T& out) {
  if (remaining() < sizeof(T)) return truncated(what);
  std::memcpy(&out, bytes_.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return ok_status();
}

Status GgufReader::read_string(std::string_view what, uint64_t max_bytes, std::string_view& out) {
  const uint64_t start = at_;
  uint64_t length = 0;
  BZ_TRY(read_number(what, length));
  if (length > remaining()) {
    return invalid_argument("{}: {} at byte {} claims {} bytes, but {} remain; the file is truncated or corrupt",
                            file_.name_, what, start, length, remaining());
  }
  if (length > max_bytes) {
    return invalid_argument("{}: {} at byte {} has {} bytes, at most {} are allowed; the file is corrupt", file_.name_,
                            what, start, length, max_bytes);
  }
  out = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(length)};
  at_ += length;
  return ok_status();
}

Status GgufReader::read() {
  uint64_t num_tensors = 0;
  uint64_t num_metadata = 0;
  BZ_TRY(read_header(num_tensors, num_metadata));
  BZ_TRY(read_metadata(num_metadata));
  BZ_TRY(read_alignment());
  BZ_TRY(read_tensor_infos(num_tensors));
  return place_tensors();
}

Status GgufReader::read_header(uint64_t& num_tensors, uint64_t& num_metadata) {
  char magic[4] = {};
  BZ_TRY(read_number("the magic", magic));
  if (std::string_view(magic, 4) != "GGUF") {
    return invalid_argument("{}: is no GGUF file (it begins with '{}', not 'GGUF'); name a .gguf file", file_.name_,
                            printable({magic, 4}));
  }
  uint32_t version = 0;
  BZ_TRY(read_number("the version", version));
  if (version != 0 && (version & 0xffffu) == 0) {
    return invalid_argument("{}: is a big-endian GGUF file, which is not supported; convert it to little endian",
                            file_.name_);
  }
  if (version != 2 && version != 3) {
    return invalid_argument("{}: GGUF version {} is not supported (supported: 2, 3); convert the model again",
                            file_.name_, version);
  }
  file_.version_ = version;
  BZ_TRY(read_number("the tensor count", num_tensors));
  BZ_TRY(read_number("the metadata count", num_metadata));
  if (num_metadata > remaining() / kMinMetadataBytes) {
    return invalid_argument("{}: the header claims {} metadata entries, but only {} bytes follow; the file is corrupt",
                            file_.name_, num_metadata, remaining());
  }
  if (num_tensors > remaining() / kMinTensorInfoBytes) {
    return invalid_argument("{}: the header claims {} tensors, but only {} bytes follow; the file is corrupt",
                            file_.name_, num_tensors, remaining());
  }
  return ok_status();
}

Status GgufReader::read_metadata(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    GgufMetadata entry;
    entry.offset = at_;
    BZ_TRY(read_string("a metadata key", kMaxKeyBytes, entry.key));
    if (entry.key.empty()) {
      return invalid_argument("{}: the metadata key at byte {} is empty; the file is corrupt", file_.name_,
                              entry.offset);
    }
    uint32_t type = 0;
    BZ_TRY(read_number("a metadata type", type));
    BZ_TRY(read_value(entry.key, static_cast<GgufType>(type), entry.value));
    if (!file_.metadata_index_.emplace(entry.key, file_.metadata_.size()).second) {
      return invalid_argument("{}: key '{}' appears twice (again at byte {}); the file is corrupt", file_.name_,
                              printable(entry.key), entry.offset);
    }
    file_.metadata_.push_back(entry);
  }
  return ok_status();
}

namespace {
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
}  // namespace

Status GgufReader::read_value(std::string_view key, GgufType type, GgufValue& value) {
  value.type = type;
  if (type == GgufType::kString) {
    std::string_view text;
    BZ_TRY(read_string("the value of key '" + printable(key) + "'", kNoLimit, text));
    value.data = text;
    return ok_status();
  }
  if (type == GgufType::kArray) {
    GgufArray array;
    BZ_TRY(read_array(key, 1, array));
    value.data = array;
    return ok_status();
  }
  const size_t size = gguf_scalar_bytes(type);
  if (size == 0) {
    return invalid_argument("{}: key '{}' has unknown type {} at byte {}; the file is corrupt or too new", file_.name_,
                            printable(key), static_cast<uint32_t>(type), at_ - sizeof(uint32_t));
  }
  if (size > remaining()) return truncated("the value of key '" + printable(key) + "'");
  const std::byte* at = bytes_.data() + at_;
  switch (type) {
    case GgufType::kUint8: value.data = uint64_t{load<uint8_t>(at)}; break;
    case GgufType::kInt8: value.data = int64_t{load<int8_t>(at)}; break;
    case GgufType::kUint16: value.data = uint64_t{load<uint16_t>(at)}; break;
    case GgufType::kInt16: value.data = int64_t{load<int16_t>(at)}; break;
    case GgufType::kUint32: value.data = uint64_t{load<uint32_t>(at)}; break;
    case GgufType::kInt32: value.data = int64_t{load<int32_t>(at)}; break;
    case GgufType::kUint64: value.data = load<uint64_t>(at); break;
    case GgufType::kInt64: value.data = load<int64_t>(at); break;
    case GgufType::kFloat32: value.data = double{load<float>(at)}; break;
    case GgufType::kFloat64: value.data = load<double>(at); break;
    case GgufType::kBool:
      if (load<uint8_t>(at) > 1) {
        return invalid_argument("{}: key '{}' at byte {} is a bool with value {}; the file is corrupt", file_.name_,
                                printable(key), at_, load<uint8_t>(at));
      }
      value.data = load<uint8_t>(at) == 1;
      break;
    case GgufType::kString:
    case GgufType::kArray: break;  // handled above
  }
  at_ += size;
  return ok_status();
}

Status GgufReader::read_array(std::string_view key, int depth, GgufArray& array) {
  const uint64_t start = at_;
  uint32_t element_type = 0;
  BZ_TRY(read_number("an array's element type", element_type));
  BZ_TRY(read_number("an array's count", array.count));
  array.element_type = static_cast<GgufType>(element_type);
  uint64_t min_bytes = gguf_scalar_bytes(array.element_type);
  if (array.element_type == GgufType::kString) min_bytes = 8;
  if (array.element_type == GgufType::kArray) min_bytes = 12;
  if (min_bytes == 0) {
    return invalid_argument("{}: key '{}' is an array of unknown type {} at byte {}; the file is corrupt or too new",
                            file_.name_, printable(key), element_type, start);
  }
  if (array.count > remaining() / min_bytes) {
    return invalid_argument(
        "{}: key '{}' at byte {} claims {} array elements, but only {} bytes follow; the file is corrupt", file_.name_,
        printable(key), start, array.count, remaining());
  }
  const uint64_t first = at_;
  BZ_TRY(skip_elements(key, depth, array));
  array.bytes = bytes_.subspan(first, at_ - first);
  return ok_status();
}

Status GgufReader::skip_elements(std::string_view key, int depth, const GgufArray& array) {
  if (const size_t size = gguf_scalar_bytes(array.element_type); size != 0) {
    at_ += array.count * size;
    return ok_status();
  }
  if (array.element_type == GgufType::kString) {
    std::string_view ignored;
    for (uint64_t i = 0; i < array.count; ++i) BZ_TRY(read_string("an array's string", kNoLimit, ignored));
    return ok_status();
  }
  if (depth >= kMaxArrayDepth) {
    return invalid_argument("{}: key '{}' nests arrays more than {} deep at byte {}; the file is corrupt", file_.name_,
                            printable(key), kMaxArrayDepth, at_);
  }
  GgufArray inner;
  for (uint64_t i = 0; i < array.count; ++i) BZ_TRY(read_array(key, depth + 1, inner));
  return ok_status();
}

Status GgufReader::read_alignment() {
  BZ_ASSIGN(const uint64_t alignment, file_.get_uint("general.alignment", 32));
  if (alignment < 8 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
    return invalid_argument("{}: key 'general.alignment' is {}, expected a power of two from 8 to {}", file_.name_,
                            alignment, kMaxAlignment);
  }
  file_.alignment_ = static_cast<uint32_t>(alignment);
  return ok_status();
}

Status GgufReader::read_tensor_infos(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    BZ_TRY(read_tensor_info(tensor));
    BZ_TRY(size_tensor(tensor));
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return invalid_argument("{}: tensor '{}' appears twice (again before byte {}); the file is corrupt", file_.name_,
                              printable(tensor.name), at_);
    }
    file_.tensors_.push_back(tensor);
  }
  return ok_status();
}

Status GgufReader::read_tensor_info(GgufTensor& tensor) {
  const uint64_t start = at_;
  BZ_TRY(read_string("a tensor's name", kMaxTensorNameBytes, tensor.name));
  if (tensor.name.empty()) {
    return invalid_argument("{}: the tensor at byte {} has no name; the file is corrupt", file_.name_, start);
  }
  const std::string what = "tensor '" + printable(tensor.name) + "'";
  uint32_t num_dims = 0;
  BZ_TRY(read_number(what, num_dims));
  if (num_dims > tensor.dims.size()) {
    return invalid_argument("{}: {} has {} dimensions, at most {} are allowed; the file is corrupt", file_.name_, what,
                            num_dims, tensor.dims.size());
  }
  tensor.num_dims = static_cast<int>(num_dims);
  uint64_t num_elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    uint64_t dim = 0;
    BZ_TRY(read_number(what, dim));
    // 2^56 elements of the widest type (8 bytes) still fit in 63 bits.
    if (dim == 0 || dim > (uint64_t{1} << 56) / num_elements) {
      return invalid_argument("{}: {} has the absurd size {} in dimension {}; the file is corrupt", file_.name_, what,
                              dim, i);
    }
    num_elements *= dim;
    tensor.dims[i] = static_cast<int64_t>(dim);
  }
  BZ_TRY(read_number(what, tensor.type_id));
  return read_number(what, tensor.offset);
}

Status GgufReader::size_tensor(GgufTensor& tensor) {
  const GgufTensorType* type = find_gguf_tensor_type(tensor.type_id);
  if (type == nullptr) return ok_status();  // size unknown; using the tensor is an error, listing it is not
  tensor.dtype = type->dtype;
  if (tensor.row_length() % type->block_elems != 0) {
    return invalid_argument(
        "{}: tensor '{}' has rows of {} elements, no multiple of {}'s block of {}; the file is corrupt", file_.name_,
        printable(tensor.name), tensor.row_length(), type->name, type->block_elems);
  }
  tensor.num_bytes = tensor.row_length() / type->block_elems * type->block_bytes * tensor.num_rows();
  return ok_status();
}

Status GgufReader::place_tensors() {
  const uint64_t alignment = file_.alignment_;
  file_.data_offset_ = (at_ + alignment - 1) / alignment * alignment;
  std::vector<const GgufTensor*> by_offset;
  by_offset.reserve(file_.tensors_.size());
  for (GgufTensor& tensor : file_.tensors_) {
    const uint64_t size = static_cast<uint64_t>(tensor.num_bytes);
    if (tensor.offset % alignment != 0) {
      return invalid_argument("{}: tensor '{}' has offset {}, no multiple of the alignment {}; the file is corrupt",
                              file_.name_, printable(tensor.name), tensor.offset, alignment);
    }
    const uint64_t data_bytes = bytes_.size() > file_.data_offset_ ? bytes_.size() - file_.data_offset_ : 0;
    if (tensor.offset > data_bytes || size > data_bytes - tensor.offset) {
      return invalid_argument(
          "{}: tensor '{}' needs {} bytes at offset {} of the data, which has {}; the file is truncated: download it "
          "again",
          file_.name_, printable(tensor.name), size, tensor.offset, data_bytes);
    }
    tensor.offset += file_.data_offset_;
    tensor.data = bytes_.data() + std::min<uint64_t>(tensor.offset, bytes_.size());
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->num_bytes < b->num_bytes;
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    if (before.offset + static_cast<uint64_t>(before.num_bytes) > by_offset[i]->offset) {
      return invalid_argument("{}: tensors '{}' and '{}' overlap at byte {}; the file is corrupt", file_.name_,
                              printable(before.name), printable(by_offset[i]->name), by_offset[i]->offset);
    }
  }
  return ok_status();
}

}  // namespace bz::formats
