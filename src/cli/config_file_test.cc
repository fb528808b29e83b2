#include "cli/config_file.h"

#include <unistd.h>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bz::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConfigFile : public testing::Test {
 protected:
  ConfigFile() {
    command.add_option("--port", port)->check(CLI::Range(0, 65535));
    command.add_option("--api-key", keys);
    command.add_option("--cors-origins", origins)->delimiter(',');
    command.add_flag("--log-json", json);
    command.add_flag("!--no-caching", caching);
  }
  ~ConfigFile() override { std::filesystem::remove(path); }

  Status apply(const std::string& text, std::vector<std::string> arguments = {}) {
    std::ofstream(path) << text;
    std::reverse(arguments.begin(), arguments.end());
    command.parse(arguments);
    return apply_config_file(command, path);
  }

  std::string path = testing::TempDir() + "config_file_test." + std::to_string(getpid());
  CLI::App command{"", "serve"};
  int port = 1;
  std::vector<std::string> keys, origins;
  bool json = false, caching = true;
};

TEST_F(ConfigFile, SetsEveryKindOfOption) {
  const Status status = apply(
      "# a comment\n\nport = 8001\napi-key = [\"one two\", \"three\"]\ncors-origins = \"a\"\nlog-json = true\n"
      "no-caching = true\n");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(port, 8001);
  EXPECT_THAT(keys, ElementsAre("one two", "three"));
  EXPECT_THAT(origins, ElementsAre("a"));
  EXPECT_TRUE(json);
  EXPECT_FALSE(caching);
}

TEST_F(ConfigFile, AFlagCanBeFalse) {
  ASSERT_TRUE(apply("log-json = false\nno-caching = false\n").ok());
  EXPECT_FALSE(json);
  EXPECT_TRUE(caching);
}

TEST_F(ConfigFile, TheCommandLineWins) {
  ASSERT_TRUE(apply("port = 8001\napi-key = \"file\"\n", {"--port", "8002"}).ok());
  EXPECT_EQ(port, 8002);
  EXPECT_THAT(keys, ElementsAre("file"));
}

TEST_F(ConfigFile, WhatIsWrongIsOneLineThatNamesIt) {
  for (const auto& [text, says] : {std::pair{"portt = 1\n", "'portt'"},
                                   {"[serve]\nport = 1\n", "[serve]"},
                                   {"config = \"x\"\n", "'config'"},
                                   {"port = many\n", "--port"},
                                   {"port = 70000\n", "--port"},
                                   {"port = [1, 2]\n", "--port"},
                                   {"port = 1\nport = 2\n", "--port"},
                                   {"log-json = maybe\n", "log-json"}}) {
    CLI::App fresh{"", "serve"};
    int number = 0;
    bool flag = false;
    fresh.add_option("--port", number)->check(CLI::Range(0, 65535));
    fresh.add_flag("--log-json", flag);
    std::ofstream(path) << text;
    const Status status = apply_config_file(fresh, path);
    EXPECT_EQ(status.exit_code(), 2) << text;
    EXPECT_THAT(status.message(), HasSubstr(says));
    EXPECT_THAT(status.message(), HasSubstr(path));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
  EXPECT_THAT(apply_config_file(command, "/no/such/file").message(), HasSubstr("/no/such/file"));
  EXPECT_THAT(apply_config_file(command, testing::TempDir()).message(), HasSubstr("folder"));
}

}  // namespace
}  // namespace bz::cli
