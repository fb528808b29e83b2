#include "formats/gguf_types.h"

#include "base/check.h"

namespace bz::formats {

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kUint8: return "u8";
    case GgufType::kInt8: return "i8";
    case GgufType::kUint16: return "u16";
    case GgufType::kInt16: return "i16";
    case GgufType::kUint32: return "u32";
    case GgufType::kInt32: return "i32";
    case GgufType::kFloat32: return "f32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kUint64: return "u64";
    case GgufType::kInt64: return "i64";
    case GgufType::kFloat64: return "f64";
  }
  return "?";
}

size_t gguf_scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool: return 1;
    case GgufType::kUint16:
    case GgufType::kInt16: return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32: return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

namespace {
// Types without a DType are listed so that `inspect` can name and size them.
constexpr GgufTensorType kTensorTypes[] = {
    {0, "F32", 1, 4, DType::kF32},
    {1, "F16", 1, 2, DType::kF16},
    {2, "Q4_0", 32, 18, DType::kQ4_0},
    {3, "Q4_1", 32, 20, DType::kQ4_1},
    {6, "Q5_0", 32, 22, DType::kQ5_0},
    {7, "Q5_1", 32, 24, DType::kQ5_1},
    {8, "Q8_0", 32, 34, DType::kQ8_0},
    {9, "Q8_1", 32, 36, {}},
    {10, "Q2_K", 256, 84, {}},
    {11, "Q3_K", 256, 110, {}},
    {12, "Q4_K", 256, 144, DType::kQ4_K},
    {13, "Q5_K", 256, 176, DType::kQ5_K},
    {14, "Q6_K", 256, 210, DType::kQ6_K},
    {15, "Q8_K", 256, 292, {}},
    {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},
    {19, "IQ1_S", 256, 50, {}},
    {20, "IQ4_NL", 32, 18, {}},
    {21, "IQ3_S", 256, 110, {}},
    {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, {}},
    {24, "I8", 1, 1, DType::kI8},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, DType::kI32},
    {27, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},
    {30, "BF16", 1, 2, DType::kBF16},
    {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},
};

constexpr bool sizes_agree_with_dtypes() {
  for (const GgufTensorType& type : kTensorTypes) {
    if (!type.dtype) continue;
    const DTypeInfo info = dtype_info(*type.dtype);
    if (info.block_elems != type.block_elems || info.block_bytes != type.block_bytes) return false;
  }
  return true;
}
static_assert(sizes_agree_with_dtypes());
}  // namespace

const GgufTensorType* find_gguf_tensor_type(uint32_t id) {
  for (const GgufTensorType& type : kTensorTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

const GgufTensorType& gguf_tensor_type(DType dtype) {
  for (const GgufTensorType& type : kTensorTypes) {
    if (type.dtype == dtype) return type;
  }
  BZ_CHECK_MSG(false, "no GGUF type for {}", dtype_info(dtype).name);
}

}  // namespace bz::formats
