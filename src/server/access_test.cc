#include "server/access.h"

#include <gtest/gtest.h>

namespace bz::server {
namespace {

TEST(Access, SecretsAreComparedWhole) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abc", "ab"));
  EXPECT_FALSE(same_secret("abab", "ab"));
  EXPECT_FALSE(same_secret("", "a"));
  EXPECT_FALSE(same_secret("a", ""));
}

TEST(Access, KeysNeedTheBearerScheme) {
  const std::vector<std::string> keys{"one", "two"};
  EXPECT_TRUE(key_accepted(keys, "Bearer two"));
  EXPECT_TRUE(key_accepted(keys, "bearer one"));
  EXPECT_FALSE(key_accepted(keys, "Bearer three"));
  EXPECT_FALSE(key_accepted(keys, "Basic one"));
  EXPECT_FALSE(key_accepted(keys, "one"));
  EXPECT_FALSE(key_accepted(keys, ""));
  EXPECT_FALSE(key_accepted(keys, "Bearer "));
  EXPECT_TRUE(key_accepted({}, ""));
}

TEST(Access, OriginsAreOwnAllowedOrForeign) {
  using enum OriginKind;
  const std::vector<std::string> none;
  EXPECT_EQ(classify_origin("", "localhost:8000", none, true), kNone);
  EXPECT_EQ(classify_origin("http://localhost:8000", "localhost:8000", none, true), kOwn);
  EXPECT_EQ(classify_origin("http://127.0.0.1:8000", "127.0.0.1:8000", none, true), kOwn);
  EXPECT_EQ(classify_origin("http://[::1]:8000", "[::1]:8000", none, true), kOwn);
  EXPECT_EQ(classify_origin("http://localhost:3000", "localhost:8000", none, true), kForeign);
  EXPECT_EQ(classify_origin("https://evil.example", "localhost:8000", none, true), kForeign);
  EXPECT_EQ(classify_origin("null", "localhost:8000", none, true), kForeign);
  EXPECT_EQ(classify_origin("http://", "", none, true), kForeign);
  EXPECT_EQ(classify_origin("https://app.example", "x", {"https://app.example"}, true), kAllowed);
  EXPECT_EQ(classify_origin("https://app.example.evil", "x", {"https://app.example"}, true), kForeign);
  EXPECT_EQ(classify_origin("https://any.example", "x", {"*"}, true), kAllowed);
}

// A page of evil.example whose name was pointed at 127.0.0.1 after it was loaded sends matching Origin and Host.
TEST(Access, ARebornNameIsForeignOnALoopbackServer) {
  EXPECT_EQ(classify_origin("http://evil.example:8000", "evil.example:8000", {}, true), OriginKind::kForeign);
  EXPECT_EQ(classify_origin("http://gpu.example:8000", "gpu.example:8000", {}, false), OriginKind::kOwn);
}

TEST(Access, WhatNoBrowserSendsIsNoOrigin) {
  for (const char* good :
       {"*", "null", "https://app.example", "http://localhost:3000", "http://[::1]:80", "chrome-extension://abc"}) {
    EXPECT_TRUE(can_be_origin(good)) << good;
  }
  for (const char* bad : {"", "app.example", "https://app.example/", "https://", "://x", "https://*.example",
                          "https://a.example https://b.example"}) {
    EXPECT_FALSE(can_be_origin(bad)) << bad;
  }
}

TEST(Access, RequestIdsArePlainOrDropped) {
  EXPECT_EQ(sane_request_id("a-b_c.1:2"), "a-b_c.1:2");
  EXPECT_EQ(sane_request_id("a b"), "");
  EXPECT_EQ(sane_request_id("a\r\nX: y"), "");
  EXPECT_EQ(sane_request_id(std::string(129, 'a')), "");
}

}  // namespace
}  // namespace bz::server
