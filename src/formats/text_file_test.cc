#include "formats/text_file.h"

#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bz::formats {
namespace {

using testing::HasSubstr;

class TextFile : public testing::Test {
 protected:
  TextFile() { std::filesystem::create_directory(folder); }
  ~TextFile() override { std::filesystem::remove_all(folder); }

  void expect_refused(const std::string& bad, const char* says) {
    const Status status = read_text_file(bad, 8).status();
    EXPECT_EQ(status.exit_code(), 2);
    EXPECT_THAT(status.message(), HasSubstr(bad));
    EXPECT_THAT(status.message(), HasSubstr(says));
  }

  std::string folder = testing::TempDir() + "text_file_test." + std::to_string(getpid());
  std::string path = folder + "/file";
};

TEST_F(TextFile, IsReadWhole) {
  std::ofstream(path) << "1234567\n";
  EXPECT_EQ(*read_text_file(path, 8), "1234567\n");
  std::ofstream(path) << "";
  EXPECT_EQ(*read_text_file(path, 8), "");
}

TEST_F(TextFile, BadPathsAreOneLine) {
  std::ofstream(path) << "123456789";
  expect_refused(path, "more than 8 bytes");
  expect_refused("/dev/zero", "more than 8 bytes");
  expect_refused(folder, "folder");
  expect_refused(folder + "/none", "no such file");
}

TEST_F(TextFile, AFifoThatNobodyWritesToDoesNotHang) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(*read_text_file(path, 8), "");
}

TEST_F(TextFile, APipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "abc", 3), 3);
  ::close(ends[1]);
  EXPECT_EQ(*read_text_file("/dev/fd/" + std::to_string(ends[0]), 8), "abc");
  ::close(ends[0]);
}

}  // namespace
}  // namespace bz::formats
