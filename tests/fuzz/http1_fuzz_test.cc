// The fuzz target over mutations of good and bad requests, always the same ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {
namespace {

void RunTarget(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

const std::vector<std::string>& Seeds() {
  static const auto* const seeds = new std::vector<std::string>{
      "GET /a?b=c HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\nHEAD / HTTP/1.0\r\n\r\n",
      "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcdeGET / HTTP/1.1\r\nHost: h\r\n"
      "Connection: close\r\n\r\n",
      "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;e=f\r\nabc\r\n0000000a\r\n0123456789\r\n0\r\nT: v\r\n\r\nOPTIONS * "
      "HTTP/1.1\r\nHost:\r\n\r\n",
      "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
  };
  return *seeds;
}

// Changes, drops, doubles or puts in bytes.
std::string Mutate(std::string text, std::mt19937& random) {
  static constexpr std::string_view kBytes("\r\n \t:;,0\0/1fX\x80\x7f", 15);
  for (unsigned n = 1 + random() % 4; n > 0 && !text.empty(); --n) {
    const size_t at = random() % text.size();
    const size_t n_bytes = std::min<size_t>(random() % 20, text.size() - at);
    switch (random() % 4) {
      case 0:
        text[at] = kBytes[random() % kBytes.size()];
        break;
      case 1:
        text.erase(at, n_bytes);
        break;
      case 2:
        text.insert(at, text.substr(at, n_bytes));
        break;
      default:
        text.insert(at, 1, kBytes[random() % kBytes.size()]);
    }
  }
  return text;
}

// An input has two bytes before the client's.
std::string Input(unsigned behavior, unsigned cut, const std::string& text) {
  return std::string{static_cast<char>(behavior), static_cast<char>(cut)}.append(text);
}

TEST(Http1FuzzTest, SurvivesTruncation) {
  for (const std::string& seed : Seeds()) {
    for (unsigned behavior = 0; behavior < 8; ++behavior) {
      for (size_t n = 0; n <= seed.size(); ++n) RunTarget(Input(behavior, 0, seed.substr(0, n)));
    }
  }
}

TEST(Http1FuzzTest, SurvivesMutation) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string& seed = Seeds()[random() % Seeds().size()];
    const unsigned behavior = random() % 8;
    const unsigned cut = random() % 64;
    RunTarget(Input(behavior, cut, Mutate(seed, random)));
  }
}

TEST(Http1FuzzTest, SurvivesLongBodies) {
  const std::string body(5000, 'x');
  const std::string length = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n" + body;
  for (unsigned behavior = 0; behavior < 8; ++behavior) {
    RunTarget(Input(behavior, 63, length + length));
  }
}

}  // namespace
}  // namespace lowkey
