// The part of a request that says what to answer: prompts of completions, messages of chats.
#pragma once

#include <vector>

#include "server/fields.h"
#include "server/openai_request.h"

namespace bz::server {

// A string, an array of token ids, or an array of strings and of arrays of token ids. nullptr: it is missing.
Result<std::vector<Prompt>> read_prompts(const Json* value, const RequestLimits& limits);
// An array of {"role", "content"}, not empty. nullptr: it is missing.
Result<std::vector<ChatMessage>> read_messages(const Json* value);

}  // namespace bz::server
