#include "formats/gguf.h"

#include <unistd.h>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_writer.h"

namespace bz::formats {
namespace {

using ::testing::HasSubstr;

const std::vector<float> kOnes(64, 1.0f);

GgufWriter small_file() {
  GgufWriter w;
  w.add("general.architecture", "llama").add("u", uint32_t{7}).add("i", int32_t{-3}).add("f", 1.5f).add("b", true);
  w.add("names", std::vector<std::string>{"a", "", "long one"}).add("ids", std::vector<int32_t>{1, -2});
  w.add_tensor("first", {32, 2}, kOnes);
  w.add_tensor("second", {8}, std::span(kOnes).first(8));
  return w;
}

Status parse_status(const std::vector<std::byte>& bytes) { return GgufFile::parse(bytes, "m.gguf").status(); }

template <class T>
void patch(std::vector<std::byte>& bytes, size_t at, T value) {
  ASSERT_LE(at + sizeof value, bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// Every error must be one line that begins with the file's name and holds what is expected.
void expect_error(const Status& status, const std::string& part) {
  ASSERT_FALSE(status.ok()) << "expected an error with: " << part;
  EXPECT_THAT(status.message(), testing::StartsWith("m.gguf: "));
  EXPECT_THAT(status.message(), HasSubstr(part));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_EQ(status.exit_code(), 2);
}

TEST(Gguf, ReadsWhatTheWriterWrote) {
  const auto bytes = small_file().bytes();
  auto file = GgufFile::parse(bytes, "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(*file->get_string("general.architecture"), "llama");
  EXPECT_EQ(*file->get_uint("u"), 7u);
  EXPECT_EQ(*file->get_float("f"), 1.5);
  EXPECT_EQ(*file->get_float("u"), 7.0);
  EXPECT_TRUE(*file->get_bool("b"));
  EXPECT_THAT(*file->get_string_array("names"), testing::ElementsAre("a", "", "long one"));
  EXPECT_THAT(*file->get_int_array("ids"), testing::ElementsAre(1, -2));
  EXPECT_EQ(*file->get_uint("absent", 5), 5u);

  ASSERT_EQ(file->tensors().size(), 2u);
  const GgufTensor& first = file->tensors()[0];
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.num_dims, 2);
  EXPECT_EQ(first.dims, (std::array<int64_t, 4>{32, 2, 1, 1}));
  EXPECT_EQ(first.dtype, DType::kF32);
  EXPECT_EQ(first.num_bytes, 256);
  EXPECT_EQ(std::memcmp(first.data, kOnes.data(), 256), 0);
  EXPECT_EQ(file->find_tensor("second")->num_bytes, 32);
  EXPECT_EQ(file->find_tensor("third"), nullptr);
}

TEST(Gguf, OpensAFileAndKeepsItMapped) {
  const std::string path = testing::TempDir() + "bz_gguf_test." + std::to_string(getpid());
  ASSERT_TRUE(small_file().write(path).ok());
  auto opened = GgufFile::open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const GgufFile file = std::move(opened).value();
  std::filesystem::remove(path);  // the mapping holds the file
  EXPECT_EQ(std::memcmp(file.find_tensor("first")->data, kOnes.data(), 256), 0);
  EXPECT_EQ(*file.get_string("general.architecture"), "llama");
}

TEST(Gguf, ReadsVersion2) {
  auto bytes = small_file().bytes();
  patch<uint32_t>(bytes, 4, 2);
  EXPECT_TRUE(parse_status(bytes).ok());
}

TEST(Gguf, GettersNameKeyAndType) {
  const auto bytes = small_file().bytes();
  auto file = GgufFile::parse(bytes, "m.gguf");
  ASSERT_TRUE(file.ok());
  expect_error(file->get_uint("absent").status(), "key 'absent' is missing");
  expect_error(file->get_uint("f").status(), "key 'f' has type f32, expected an integer");
  expect_error(file->get_uint("i").status(), "key 'i' is -3");
  expect_error(file->get_uint("b", 3).status(), "key 'b' has type bool");
  expect_error(file->get_string("u").status(), "key 'u' has type u32, expected string");
  expect_error(file->get_string_array("ids").status(), "array of i32");
  expect_error(file->get_int_array("names").status(), "array of string");
  expect_error(file->get_float_array("ids").status(), "array of i32");
  expect_error(file->get_tensor("third").status(), "tensor 'third' is missing");
}

TEST(Gguf, RefusesWhatIsNoGguf) {
  EXPECT_EQ(GgufFile::open("/nonexistent/m.gguf").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(GgufFile::open("/").status().message(), HasSubstr("is a folder"));
  auto bytes = small_file().bytes();
  expect_error(parse_status({}), "truncated at byte 0");
  auto wrong = bytes;
  std::memcpy(wrong.data(), "PK\x03\x04", 4);
  expect_error(parse_status(wrong), "is no GGUF file (it begins with 'PK\\x03\\x04'");
  patch<uint32_t>(bytes, 4, 1);
  expect_error(parse_status(bytes), "version 1 is not supported");
  patch<uint32_t>(bytes, 4, 3u << 24);
  expect_error(parse_status(bytes), "big-endian");
}

TEST(Gguf, EveryTruncationIsAnError) {
  const auto bytes = small_file().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Status status = parse_status({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)});
    ASSERT_FALSE(status.ok()) << "of " << bytes.size() << " bytes, the first " << size << " passed";
    ASSERT_THAT(status.message(), testing::StartsWith("m.gguf: "));
  }
}

TEST(Gguf, AbsurdCountsDoNotAllocate) {
  auto bytes = small_file().bytes();
  patch<uint64_t>(bytes, 8, ~uint64_t{0});
  expect_error(parse_status(bytes), "claims 18446744073709551615 tensors");
  bytes = small_file().bytes();
  patch<uint64_t>(bytes, 16, uint64_t{1} << 60);
  expect_error(parse_status(bytes), "metadata entries");
  bytes = small_file().bytes();
  patch<uint64_t>(bytes, 24, ~uint64_t{0});  // the first key's length
  expect_error(parse_status(bytes), "a metadata key at byte 24 claims");

  struct {
    uint32_t type = 8;
    uint32_t count[2] = {0xffffffffu, 0x0fffffffu};
  } array;
  const auto raw = std::as_bytes(std::span(&array, 1));
  expect_error(parse_status(GgufWriter().add_raw("a", 9, raw).bytes()), "array elements");
}

TEST(Gguf, NestedArraysAreBounded) {
  // depth arrays, each with one element, around one u8.
  const auto nested = [](int depth) {
    std::string value;
    for (int i = 0; i < depth; ++i) {
      const uint32_t type = i + 1 < depth ? 9 : 0;
      const uint64_t count = 1;
      value.append(reinterpret_cast<const char*>(&type), 4);
      value.append(reinterpret_cast<const char*>(&count), 8);
    }
    value += '\x05';
    return GgufWriter().add_raw("nest", 9, std::as_bytes(std::span(value))).bytes();
  };
  EXPECT_TRUE(parse_status(nested(2)).ok());
  EXPECT_TRUE(parse_status(nested(4)).ok());
  expect_error(parse_status(nested(5)), "nests arrays");
  expect_error(parse_status(nested(5000)), "nests arrays");
}

TEST(Gguf, RefusesDuplicatesAndUnknownTypes) {
  expect_error(parse_status(GgufWriter().add("k", true).add("k", false).bytes()), "key 'k' appears twice");
  expect_error(parse_status(GgufWriter().add("", true).bytes()), "is empty");
  GgufWriter twice;
  twice.add_tensor("t", {1}, std::span(kOnes).first(1)).add_tensor("t", {1}, std::span(kOnes).first(1));
  expect_error(parse_status(twice.bytes()), "tensor 't' appears twice");
  const std::byte two[] = {std::byte{2}};
  expect_error(parse_status(GgufWriter().add_raw("k", 99, two).bytes()), "unknown type 99");
  expect_error(parse_status(GgufWriter().add_raw("k", 7, two).bytes()), "a bool with value 2");
}

TEST(Gguf, ChecksTensorShapesAndPlaces) {
  const auto with = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    GgufWriter w;
    w.add_tensor("base", {64}, kOnes);
    w.add_tensor_info("t", dims, type, offset);
    return parse_status(w.bytes());
  };
  EXPECT_TRUE(with({8}, 9999, 0).ok()) << "an unknown type may be listed";
  expect_error(with({8}, 0, 0), "overlap");
  expect_error(with({8}, 0, 224), "overlap");
  expect_error(with({8}, 0, 256), "needs 32 bytes at offset 256");
  expect_error(with({8}, 0, 12), "no multiple of the alignment");
  expect_error(with({8}, 0, ~uint64_t{0} - 31), "needs 32 bytes");
  expect_error(with({0}, 0, 256), "absurd size 0");
  expect_error(with({uint64_t{1} << 40, uint64_t{1} << 40}, 0, 256), "absurd size");
  expect_error(with({~uint64_t{0}}, 0, 256), "absurd size");
  expect_error(with({1, 1, 1, 1, 1}, 0, 256), "5 dimensions");
  expect_error(with({33}, 2, 256), "no multiple of Q4_0's block of 32");
}

TEST(Gguf, UnknownTensorTypeIsListedButNotUsable) {
  GgufWriter w;
  w.add_tensor_info("strange", {8}, 9999, 0).add_tensor_info("iq", {256}, 16, 0);
  auto bytes = w.bytes();
  bytes.resize(bytes.size() + 128);
  auto file = GgufFile::parse(bytes, "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_FALSE(file->find_tensor("strange")->dtype.has_value());
  EXPECT_EQ(file->find_tensor("iq")->num_bytes, 66);
  expect_error(file->get_tensor("strange").status(), "type unknown (9999)");
  expect_error(file->get_tensor("iq").status(), "type IQ2_XXS (16), which is not supported");
}

TEST(Gguf, AlignmentIsObeyedAndChecked) {
  GgufWriter w;
  w.set_alignment(256).add_tensor("a", {1}, std::span(kOnes).first(1)).add_tensor("b", {1}, std::span(kOnes).first(1));
  const auto bytes = w.bytes();
  auto file = GgufFile::parse(bytes, "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->data_offset() % 256, 0u);
  EXPECT_EQ(file->find_tensor("b")->offset, file->data_offset() + 256);
  for (const uint32_t bad : {0u, 4u, 24u, 1u << 30}) {
    expect_error(parse_status(GgufWriter().add("general.alignment", bad).bytes()), "general.alignment");
  }
}

TEST(Gguf, PrintableKeepsMessagesOnOneLine) {
  EXPECT_EQ(printable("plain é"), "plain é");
  EXPECT_EQ(printable("a\nb\xff"), "a\\x0ab\\xff");
  EXPECT_EQ(printable(std::string(100, 'x'), 4), "xxxx...");
}

}  // namespace
}  // namespace bz::formats
