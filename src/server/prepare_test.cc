// Text to tokens, and how many tokens an answer may have.
#include <gtest/gtest.h>

#include "formats/byte_tokenizer.h"
#include "server/generation.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

class Prepare : public testing::Test {
 protected:
  // max_tokens of the answer to a prompt of so many tokens; 0: refused.
  int32_t max_tokens(const RequestLimits& limits, bool chat, size_t prompt, std::optional<int32_t> asked = {}) {
    GenerationRequest request;
    request.chat = chat;
    request.max_tokens = asked;
    request.add_generation_prompt = false;
    const std::string around = chat ? "user: \n" : "";
    const std::string text(prompt - around.size(), 'x');
    if (chat) {
      request.messages = {{"user", text}};
    } else {
      request.prompts = {{.text = text, .tokens = {}, .is_text = true}};
    }
    const auto prepared = prepare(
        {.engine = nullptr, .tokenizer = tokenizer.get(), .render_chat = RunningServer::render}, limits, request);
    return prepared.ok() ? prepared->max_tokens[0] : 0;
  }

  std::unique_ptr<formats::Tokenizer> tokenizer = formats::byte_tokenizer();
};

TEST_F(Prepare, AnAnswerWithoutALimitFillsTheContext) {
  const RequestLimits limits{.max_model_len = 100, .vocab_size = 300};
  EXPECT_EQ(max_tokens(limits, true, 40), 60);
  EXPECT_EQ(max_tokens(limits, true, 99), 1);
  EXPECT_EQ(max_tokens(limits, true, 100), 0);
  EXPECT_EQ(max_tokens(limits, false, 40), 16);
  EXPECT_EQ(max_tokens(limits, false, 90), 10);
}

// It was refused: the whole context was asked for, which such a cache cannot hold.
TEST_F(Prepare, AnAnswerWithoutALimitFitsACacheSmallerThanTheContext) {
  const RequestLimits limits{.max_model_len = 100, .vocab_size = 300, .max_request_tokens = 50};
  EXPECT_EQ(max_tokens(limits, true, 40), 10);
  EXPECT_EQ(max_tokens(limits, false, 40), 10);
  EXPECT_EQ(max_tokens(limits, true, 60), 1);       // the engine says that the prompt is too long
  EXPECT_EQ(max_tokens(limits, true, 40, 60), 60);  // and that this is too much
}

}  // namespace
}  // namespace bz::server
