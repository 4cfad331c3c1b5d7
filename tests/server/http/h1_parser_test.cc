#include "server/http/h1_parser.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr size_t kAll = std::numeric_limits<size_t>::max();

// Collects a parser's events as text: "POST /a?q @h x=1 [body] . 400 reason".
class Events {
 public:
  explicit Events(const HttpLimits& limits = {}) : limits_(limits), parser_(limits_) {}

  void Feed(std::string_view bytes, size_t max_body_bytes = kAll) {
    while (true) {
      const Http1Parser::Event event = parser_.Next(bytes, max_body_bytes);
      if (event == Http1Parser::Event::kNone) {
        EXPECT_EQ(bytes, "");
        return;
      }
      if (event == Http1Parser::Event::kHead) AddHead(parser_.TakeHead());
      if (event == Http1Parser::Event::kBody) body_ += parser_.body();
      if (event == Http1Parser::Event::kEnd) {
        if (!body_.empty()) text_ += "[" + body_ + "] ";
        body_.clear();
        text_ += ". ";
      }
      if (event == Http1Parser::Event::kError) {
        if (!has_failed_) text_ = absl::StrCat(text_, parser_.error().status);
        has_failed_ = true;
        return;
      }
    }
  }

  const std::string& text() const { return text_; }
  const Http1Parser& parser() const { return parser_; }

 private:
  void AddHead(const HttpHead& head) {
    text_ += head.method + " " + head.path;
    if (!head.query.empty()) text_ += "?" + head.query;
    text_ += " @" + head.authority + " ";
    for (const HttpField& field : head.fields) {
      if (field.name != "host") text_ += field.name + "=" + field.value + " ";
    }
    if (head.has_body) text_ += "+ ";
  }

  const HttpLimits limits_;
  Http1Parser parser_;
  std::string text_;
  std::string body_;
  bool has_failed_ = false;
};

std::string Parsed(std::string_view bytes, const HttpLimits& limits = {}) {
  Events events(limits);
  events.Feed(bytes);
  return events.text();
}

// The result of a POST with these lines, and of a body after the head.
std::string ParsedPost(std::string_view fields, std::string_view body = "") {
  std::string text = "POST / HTTP/1.1\r\nHost: h\r\n";
  text.append(fields).append("\r\n").append(body);
  return Parsed(text);
}

std::string ParsedLine(std::string_view line) {
  return Parsed(std::string(line) + "\r\nHost: h\r\n\r\n");
}

TEST(Http1ParserTest, ReadsAHead) {
  EXPECT_EQ(Parsed("GET /a/b?c=d?e HTTP/1.1\r\nHost: h:80\r\nX-Y: \t a\tb  \r\nx-y:\r\n\r\n"),
            "GET /a/b?c=d?e @h:80 x-y=a\tb x-y= . ");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\r\nA: \xc3\xa9\r\n\r\n"), "GET / @h a=\xc3\xa9 . ");
}

TEST(Http1ParserTest, KeepsHostAmongTheFieldsAndTakesFramingOut) {
  const HttpLimits limits;
  Http1Parser parser(limits);
  std::string_view bytes = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";
  ASSERT_EQ(parser.Next(bytes, 0), Http1Parser::Event::kHead);
  const HttpHead head = parser.TakeHead();
  EXPECT_EQ(head.fields, (HttpFields{{"host", "h"}}));
  EXPECT_TRUE(head.has_body);
  EXPECT_FALSE(head.is_http2);
}

TEST(Http1ParserTest, ReadsRequestsOneAfterAnother) {
  EXPECT_EQ(Parsed("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
                   "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "1\r\nd\r\n0\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n"),
            "POST /a @h + [abc] . POST /b @h + [d] . GET /c @h . ");
}

TEST(Http1ParserTest, TakesEachMethodAndRefusesOthers) {
  for (const char* method : {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    EXPECT_EQ(ParsedLine(absl::StrCat(method, " / HTTP/1.1")), absl::StrCat(method, " / @h . "));
  }
  for (const char* method : {"TRACE", "CONNECT", "get", "X!"}) {
    EXPECT_EQ(ParsedLine(absl::StrCat(method, " / HTTP/1.1")), "501") << method;
  }
  for (const char* method : {"G(T", "GET\t", "", "\xc3\xa9"}) {
    EXPECT_EQ(ParsedLine(absl::StrCat(method, " / HTTP/1.1")), "400") << method;
  }
}

TEST(Http1ParserTest, RefusesOtherVersions) {
  for (const char* version : {"HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/3.1"}) {
    EXPECT_EQ(ParsedLine(absl::StrCat("GET / ", version)), "505") << version;
  }
  for (const char* version : {"HTTP/1", "http/1.1", "HTTP/1.1 ", "HTTP/1.11", "HTTP/x.1",
                              "HTTP/1,1", "ICY/1.1", "HTTP/1.x", ""}) {
    EXPECT_EQ(ParsedLine(absl::StrCat("GET / ", version)), "400") << version;
  }
  EXPECT_EQ(ParsedLine("GET /"), "400");
  EXPECT_EQ(ParsedLine("GET"), "400");
}

TEST(Http1ParserTest, TakesTargetsOfServersAndThroughProxies) {
  EXPECT_EQ(ParsedLine("OPTIONS * HTTP/1.1"), "OPTIONS * @h . ");
  EXPECT_EQ(ParsedLine("GET /%00?#x HTTP/1.1"), "400");
  for (const char* target : {"*", "http://", "http:/h/", "h:80", "", "a", "/a b", " /", "/ ",
                             "/a\tb", "/\xc3\xa9", "/\x7f"}) {
    EXPECT_EQ(ParsedLine(absl::StrCat("GET ", target, " HTTP/1.1")), "400") << target;
  }
  EXPECT_EQ(ParsedLine("OPTIONS ** HTTP/1.1"), "400");
  EXPECT_EQ(ParsedLine("GET HTTP://H/a?b HTTP/1.1"), "GET /a?b @h . ");
  EXPECT_EQ(ParsedLine("GET https://h HTTP/1.1"), "GET / @h . ");
  EXPECT_EQ(ParsedLine("GET http://other/ HTTP/1.1"), "400");  // Host is h
  EXPECT_EQ(ParsedLine("GET http://user@h/ HTTP/1.1"), "400");
  EXPECT_EQ(Parsed("GET http://h/ HTTP/1.0\r\n\r\n"), "GET / @h . ");
  EXPECT_EQ(Parsed("GET http://user@h/ HTTP/1.0\r\n\r\n"), "400");
  EXPECT_EQ(ParsedLine("GET http:///a HTTP/1.1"), "400");
  EXPECT_EQ(ParsedLine("GET ftp://h/a HTTP/1.1"), "400");
}

TEST(Http1ParserTest, LimitsTheTarget) {
  HttpLimits limits;
  limits.max_target_bytes = 100;
  const auto line = [](size_t n_bytes) {
    return "GET /" + std::string(n_bytes - 1, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n";
  };
  EXPECT_EQ(Parsed(line(100), limits), "GET /" + std::string(99, 'a') + " @h . ");
  EXPECT_EQ(Parsed(line(101), limits), "414");
  EXPECT_EQ(Parsed("GET /" + std::string(1000, 'a'), limits), "414");  // before the line's end
}

TEST(Http1ParserTest, ToleratesOneEmptyLineBeforeARequest) {
  EXPECT_EQ(Parsed("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
            "GET / @h . GET / @h . ");
  EXPECT_EQ(Parsed("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), "400");
  EXPECT_EQ(Parsed("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), "400");
}

TEST(Http1ParserTest, RefusesLinesThatDoNotEndInCrLf) {
  EXPECT_EQ(Parsed("GET / HTTP/1.1\nHost: h\n\n"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\n\r\n"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\r\n\n"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\rHost: h\r\r"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\r\nHost: h\r\n\r\n"), "400");
}

TEST(Http1ParserTest, RefusesMalformedFields) {
  for (const std::string_view field :
       {std::string_view("A : b"), std::string_view(" A: b"), std::string_view("\tA: b"),
        std::string_view(": b"), std::string_view("A"), std::string_view("A b: c"),
        std::string_view("A\t: b"), std::string_view("A(: b"), std::string_view("\xc3\xa9: b"),
        std::string_view("A: b\0c", 6), std::string_view("A\0: b", 5), std::string_view("A: \x01"),
        std::string_view("A: \x7f"), std::string_view("A: b\rc"), std::string_view("A: b\nc: d")}) {
    EXPECT_EQ(ParsedPost(std::string(field) + "\r\n"), "400") << field;
  }
}

TEST(Http1ParserTest, RefusesFoldedFields) {
  EXPECT_EQ(ParsedPost("A: b\r\n c\r\n"), "400");
  EXPECT_EQ(ParsedPost("A: b\r\n\tc: d\r\n"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), "400");
}

TEST(Http1ParserTest, LimitsTheHeadAsHttp2Counts) {
  HttpLimits limits;
  limits.max_head_bytes = 200;  // "host: h" takes 37, so that 163 are left
  const auto with = [](size_t n_bytes) {
    return "GET / HTTP/1.1\r\nHost: h\r\na:  " + std::string(n_bytes, 'x') + "  \r\n\r\n";
  };
  EXPECT_EQ(Parsed(with(130), limits), "GET / @h a=" + std::string(130, 'x') + " . ");
  EXPECT_EQ(Parsed(with(131), limits), "431");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\r\na: " + std::string(1000, 'x'), limits), "431");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\r\na: " + std::string(1000, ' '), limits), "431");
}

TEST(Http1ParserTest, LimitsTheNumberOfFields) {
  HttpLimits limits;
  limits.max_head_fields = 3;
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\r\na:\r\nb:\r\n\r\n", limits), "GET / @h a= b= . ");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\r\na:\r\nb:\r\nc:\r\n\r\n", limits), "431");
}

TEST(Http1ParserTest, WantsOneHost) {
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\n\r\n"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.0\r\nHost: h\r\nhost: i\r\n\r\n"), "400");
  EXPECT_EQ(Parsed("GET / HTTP/1.0\r\n\r\n"), "GET / @ . ");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost:\r\n\r\n"), "GET / @ . ");
  EXPECT_EQ(Parsed("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), "GET / @[::1]:80 . ");
  for (const char* host : {"a b", "a,b", "u@h", "h/", "\xc3\xa9", "h?", "h#"}) {
    EXPECT_EQ(Parsed(absl::StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n")), "400") << host;
  }
}

TEST(Http1ParserTest, ReadsBodiesByContentLength) {
  EXPECT_EQ(ParsedPost("Content-Length: 3\r\n", "abc"), "POST / @h + [abc] . ");
  EXPECT_EQ(ParsedPost("Content-Length: 003\r\n", "abc"), "POST / @h + [abc] . ");
  EXPECT_EQ(ParsedPost("Content-Length: 0\r\n"), "POST / @h . ");
  EXPECT_EQ(ParsedPost("Content-Length: 3\r\n", "ab"), "POST / @h + ");
  EXPECT_EQ(ParsedPost("Content-Length: 999999999999999999\r\n"), "POST / @h + ");
}

TEST(Http1ParserTest, RefusesAmbiguousContentLengths) {
  for (const char* value :
       {"+3", "-3", " ", "", "3 3", "3,3", "3, 3", "0x3", "3.", "3a", "a", "9223372036854775808",
        "18446744073709551619", "99999999999999999999999999999999"}) {
    EXPECT_EQ(ParsedPost(absl::StrCat("Content-Length: ", value, "\r\n"), "abc"), "400") << value;
  }
  EXPECT_EQ(ParsedPost("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), "400");
  EXPECT_EQ(ParsedPost("Content-Length: 3\r\ncontent-length: 4\r\n", "abcd"), "400");
}

TEST(Http1ParserTest, TakesChunksInAnyCase) {
  EXPECT_EQ(ParsedPost("Transfer-Encoding: Chunked\r\n", "0\r\n\r\n"),
            ParsedPost("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"));
}

TEST(Http1ParserTest, RefusesAmbiguousTransferEncodings) {
  for (const char* value : {"xchunked", "chunked, identity", "chunked, chunked", "gzip, chunked",
                            "identity", "\"chunked\"", "chunked;q=1", "", "chunked\x0b"}) {
    EXPECT_EQ(ParsedPost(absl::StrCat("Transfer-Encoding: ", value, "\r\n"), "0\r\n\r\n"), "400")
        << value;
  }
  EXPECT_EQ(ParsedPost("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "400");
  EXPECT_EQ(ParsedPost("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), "400");
  EXPECT_EQ(Parsed("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400");
}

TEST(Http1ParserTest, RefusesALengthBesideChunks) {
  EXPECT_EQ(ParsedPost("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400");
  EXPECT_EQ(ParsedPost("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), "400");
  EXPECT_EQ(ParsedPost("Transfer-Encoding: x\r\nContent-Length: 5\r\n", "0\r\n\r\n"), "400");
}

std::string ParsedChunks(std::string_view body) {
  return ParsedPost("Transfer-Encoding: chunked\r\n", body);
}

TEST(Http1ParserTest, ReadsChunks) {
  EXPECT_EQ(ParsedChunks("3\r\nabc\r\n0000000A\r\n0123456789\r\n0\r\n\r\n"),
            "POST / @h + [abc0123456789] . ");
  EXPECT_EQ(ParsedChunks("00000000\r\n\r\n"), "POST / @h + . ");
  EXPECT_EQ(ParsedChunks("1;a=\"b\";c\r\nx\r\n0;d\r\nT: v\r\nU:\r\n\r\n"), "POST / @h + [x] . ");
  EXPECT_EQ(ParsedChunks("FFFFFFFF\r\n"), "POST / @h + ");
  EXPECT_EQ(ParsedChunks("2\r\n\r\n\r\n0\r\n\r\n"), "POST / @h + [\r\n] . ");
}

TEST(Http1ParserTest, RefusesMalformedChunks) {
  for (const char* body :
       {"\r\n", ";a\r\n", "x\r\n", "-1\r\n", "+1\r\n", " 1\r\n", "1 \r\n", "0x1\r\n", "1 ;a\r\n",
        "000000001\r\n", "100000000\r\n", "1\nx\r\n", "1\rx\r\n", "1;a\nb\r\n", "1g\r\n"}) {
    EXPECT_EQ(ParsedChunks(body), "POST / @h + 400") << body;
  }
  for (const char* body : {"1\r\nxy\r\n", "1\r\nx\n", "1\r\nx\r\r\n", "2\r\nxx0\r\n"}) {
    EXPECT_EQ(ParsedChunks(body), "POST / @h + 400") << body;
  }
  for (const char* body : {"0\r\nT\r\n\r\n", "0\r\nT : v\r\n\r\n", "0\r\nT: a\r\n b\r\n\r\n",
                           "0\r\n\n", "0\r\nT: \x01\r\n\r\n"}) {
    EXPECT_EQ(ParsedChunks(body), "POST / @h + 400") << body;
  }
}

TEST(Http1ParserTest, LimitsExtensionsAndTrailers) {
  const auto extension = [](size_t n_bytes) {
    return "1;" + std::string(n_bytes - 1, 'a') + "\r\nx\r\n0\r\n\r\n";
  };
  EXPECT_EQ(ParsedChunks(extension(256)), "POST / @h + [x] . ");
  EXPECT_EQ(ParsedChunks(extension(257)), "POST / @h + 400");
  EXPECT_EQ(ParsedChunks("1;" + std::string(100000, 'a')), "POST / @h + 400");
  const auto trailers = [](size_t n_lines) {  // of 16 bytes each
    std::string body = "0\r\n";
    for (size_t i = 0; i < n_lines; ++i) body += "T: 45678901234\r\n";
    return body + "\r\n";
  };
  EXPECT_EQ(ParsedChunks(trailers(16)), "POST / @h + . ");
  EXPECT_EQ(ParsedChunks(trailers(17)), "POST / @h + 400");
  EXPECT_EQ(ParsedChunks("0\r\nT: " + std::string(100000, 'a')), "POST / @h + 400");
}

TEST(Http1ParserTest, LimitsTheFramingOfSmallChunks) {
  std::string body;
  for (int i = 0; i < 1000; ++i) body += "1\r\nx\r\n";
  EXPECT_EQ(ParsedChunks(body + "0\r\n\r\n"), "POST / @h + [" + std::string(1000, 'x') + "] . ");
  body.clear();
  for (int i = 0; i < 1000; ++i) body += "1;" + std::string(200, 'a') + "\r\nx\r\n";
  EXPECT_EQ(ParsedChunks(body), "POST / @h + 413");
}

TEST(Http1ParserTest, RefusesEncodedContentAndUnknownExpectations) {
  EXPECT_EQ(ParsedPost("Content-Encoding: gzip\r\n"), "415");
  EXPECT_EQ(ParsedPost("Content-Encoding: identity\r\nContent-Encoding: br\r\n"), "415");
  EXPECT_EQ(ParsedPost("Content-Encoding: Identity\r\n"), "POST / @h content-encoding=Identity . ");
  EXPECT_EQ(ParsedPost("Expect: 200-ok\r\n"), "417");
  EXPECT_EQ(ParsedPost("Expect: 100-Continue\r\n"), "POST / @h expect=100-Continue . ");
}

// Whether the client waits for 100 Continue, and whether it can send another request.
std::pair<bool, bool> FlagsOf(std::string_view head) {
  Events events;
  events.Feed(head);
  return {events.parser().expects_continue(), events.parser().keeps_alive()};
}

TEST(Http1ParserTest, TellsWhatTheClientExpects) {
  const std::string v11 = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string v10 = "POST / HTTP/1.0\r\n";
  using Flags = std::pair<bool, bool>;
  EXPECT_EQ(FlagsOf(v11 + "\r\n"), Flags(false, true));
  EXPECT_EQ(FlagsOf(v11 + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\n"), Flags(true, true));
  EXPECT_EQ(FlagsOf(v11 + "Expect: 100-continue\r\n\r\n"), Flags(false, true));  // no body
  EXPECT_EQ(FlagsOf(v10 + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\n"),
            Flags(false, false));
  EXPECT_EQ(FlagsOf(v11 + "Connection: TE, Close\r\n\r\n"), Flags(false, false));
  EXPECT_EQ(FlagsOf(v11 + "Connection: a\r\nConnection: close\r\n\r\n"), Flags(false, false));
  EXPECT_EQ(FlagsOf(v11 + "Connection: closed,,\r\n\r\n"), Flags(false, true));
  EXPECT_EQ(FlagsOf(v10 + "\r\n"), Flags(false, false));
  EXPECT_EQ(FlagsOf(v10 + "Connection: Keep-Alive\r\n\r\n"), Flags(false, true));
  EXPECT_EQ(FlagsOf(v10 + "Connection: keep-alive, close\r\n\r\n"), Flags(false, false));
}

TEST(Http1ParserTest, PassesOnOnlyTheBodyThatIsAllowed) {
  const HttpLimits limits;
  Http1Parser parser(limits);
  std::string_view bytes =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\nGET";
  ASSERT_EQ(parser.Next(bytes, 0), Http1Parser::Event::kHead);
  EXPECT_EQ(parser.body_left(), std::nullopt);
  ASSERT_EQ(parser.Next(bytes, 0), Http1Parser::Event::kNone);
  EXPECT_EQ(bytes, "abcde\r\n0\r\n\r\nGET");
  EXPECT_TRUE(parser.is_in_body() && parser.is_in_body_data());
  ASSERT_EQ(parser.Next(bytes, 3), Http1Parser::Event::kBody);
  EXPECT_EQ(parser.body(), "abc");
  ASSERT_EQ(parser.Next(bytes, 2), Http1Parser::Event::kBody);
  EXPECT_EQ(parser.body(), "de");
  ASSERT_EQ(parser.Next(bytes, 0), Http1Parser::Event::kEnd);  // framing needs no allowance
  EXPECT_FALSE(parser.is_in_body() || parser.is_in_head());
  EXPECT_EQ(parser.Next(bytes, 0), Http1Parser::Event::kNone);
  EXPECT_TRUE(parser.is_in_head());
}

TEST(Http1ParserTest, TellsWhatIsLeftOfABody) {
  const HttpLimits limits;
  Http1Parser parser(limits);
  std::string_view bytes = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab";
  ASSERT_EQ(parser.Next(bytes, kAll), Http1Parser::Event::kHead);
  EXPECT_EQ(parser.body_left(), 5);
  ASSERT_EQ(parser.Next(bytes, kAll), Http1Parser::Event::kBody);
  EXPECT_EQ(parser.body_left(), 3);
}

TEST(Http1ParserTest, TakesNothingAfterAnError) {
  const HttpLimits limits;
  Http1Parser parser(limits);
  std::string_view bytes = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(parser.Next(bytes, kAll), Http1Parser::Event::kError);
  bytes = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  EXPECT_EQ(parser.Next(bytes, kAll), Http1Parser::Event::kError);
  EXPECT_EQ(parser.error().status, 400);
}

TEST(Http1ParserTest, GivesTheSameResultForEveryCut) {
  const std::vector<std::string> texts = {
      "\r\nPOST /a?b HTTP/1.1\r\nHost: h\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;e\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789GET / HTTP/1.0\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nA: b\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\r\n",
      "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
      "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n123456789\r\n",
  };
  for (const std::string& text : texts) {
    const std::string whole = Parsed(text);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      Events events;
      events.Feed(text.substr(0, cut));
      events.Feed(text.substr(cut));
      EXPECT_EQ(events.text(), whole) << text << " cut at " << cut;
    }
    Events bytewise;
    for (const char& c : text) bytewise.Feed(std::string_view(&c, 1), 1);
    EXPECT_EQ(bytewise.text(), whole) << text;
  }
}

}  // namespace
}  // namespace lowkey
