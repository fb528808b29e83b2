// The fuzzers' inputs without a fuzzer: the committed corpus, and some thousand mutations of valid seeds.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <gtest/gtest.h>

#include "seeds.h"
#include "source_dir.h"
#include "targets.h"

namespace bz::fuzz {
namespace {

using Target = void (*)(std::span<const std::byte>);

std::filesystem::path corpus_folder(const char* name) {
  return std::filesystem::path(kSourceDir) / "tests" / "fuzz" / "corpus" / name;
}

void replay(const char* name, Target target) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus_folder(name))) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    SCOPED_TRACE(entry.path().filename().string());
    target(std::as_bytes(std::span(text)));
    ++count;
  }
  EXPECT_GE(count, 5) << corpus_folder(name);
}

constexpr uint64_t kOddNumbers[] = {0,
                                    1,
                                    2,
                                    7,
                                    8,
                                    9,
                                    12,
                                    13,
                                    31,
                                    32,
                                    127,
                                    255,
                                    65535,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    uint64_t{1} << 32,
                                    uint64_t{1} << 63,
                                    ~uint64_t{0},
                                    ~uint64_t{0} - 7};

// One to four changes: a byte, a number of 4 or 8 bytes, a cut, a removed or repeated stretch.
std::vector<std::byte> mutate(std::vector<std::byte> bytes, std::mt19937_64& random) {
  for (uint64_t change = 1 + random() % 4; change > 0 && !bytes.empty(); --change) {
    const size_t at = random() % bytes.size();
    const size_t length = std::min<size_t>(1 + random() % 32, bytes.size() - at);
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at);
    switch (random() % 6) {
      case 0: bytes[at] ^= static_cast<std::byte>(1u << (random() % 8)); break;
      case 1: bytes[at] = static_cast<std::byte>(random()); break;
      case 2: {
        const uint64_t number = kOddNumbers[random() % std::size(kOddNumbers)];
        std::memcpy(bytes.data() + at, &number, std::min<size_t>(random() % 2 ? 4 : 8, bytes.size() - at));
        break;
      }
      case 3:
        if (random() % 4 == 0) bytes.resize(at);
        break;
      case 4: bytes.erase(begin, begin + static_cast<ptrdiff_t>(length)); break;
      case 5: {
        const std::vector<std::byte> stretch(begin, begin + static_cast<ptrdiff_t>(length));
        bytes.insert(begin, stretch.begin(), stretch.end());
        break;
      }
    }
  }
  return bytes;
}

void mutations(const std::vector<Seed>& seeds, Target target, int rounds) {
  std::mt19937_64 random(2024);
  for (const auto& [name, bytes] : seeds) target(bytes);
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    target(mutate(seeds[random() % seeds.size()].second, random));
  }
}

TEST(FuzzReplay, GgufCorpus) { replay("gguf", gguf); }
TEST(FuzzReplay, TokenizerCorpus) { replay("tokenizer", tokenizer); }
TEST(FuzzReplay, ChatTemplateCorpus) { replay("chat_template", chat_template); }
TEST(FuzzReplay, HttpCorpus) { replay("http", http); }
TEST(FuzzReplay, HttpMutations) { mutations(http_seeds(), http, 20000); }
TEST(FuzzReplay, GgufMutations) { mutations(gguf_seeds(), gguf, 5000); }
TEST(FuzzReplay, TokenizerMutations) { mutations(tokenizer_seeds(), tokenizer, 2000); }
TEST(FuzzReplay, ChatTemplateMutations) { mutations(chat_template_seeds(), chat_template, 5000); }

}  // namespace
}  // namespace bz::fuzz
