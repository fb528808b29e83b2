// write_seeds CORPUS_FOLDER: writes every seed to <folder>/<target>/<name>.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "seeds.h"

namespace {
void write_all(const std::filesystem::path& folder, const std::vector<bz::fuzz::Seed>& seeds) {
  std::filesystem::create_directories(folder);
  for (const auto& [name, bytes] : seeds) {
    std::ofstream out(folder / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_seeds CORPUS_FOLDER\n");
    return 2;
  }
  const std::filesystem::path corpus = argv[1];
  write_all(corpus / "gguf", bz::fuzz::gguf_seeds());
  write_all(corpus / "tokenizer", bz::fuzz::tokenizer_seeds());
  write_all(corpus / "chat_template", bz::fuzz::chat_template_seeds());
  write_all(corpus / "http", bz::fuzz::http_seeds());
  return 0;
}
