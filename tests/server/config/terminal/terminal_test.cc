#include "server/config/terminal/terminal.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

TEST(TerminalTest, BytesAreShownInTheLargestUnitThatFits) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(BytesText(int64_t{5} << 52), "20480.0 TiB");
}

TEST(TerminalTest, CountsAreGroupedByThree) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1000), "1,000");
  EXPECT_EQ(CountText(1234567), "1,234,567");
  EXPECT_EQ(CountText(-123456), "-123,456");
}

TEST(TerminalTest, DurationsHaveAReadableUnit) {
  EXPECT_EQ(DurationText(850), "850 us");
  EXPECT_EQ(DurationText(12340), "12.3 ms");
  EXPECT_EQ(DurationText(4560000), "4.56 s");
}

TEST(TerminalTest, RowsAreAligned) {
  EXPECT_EQ(AlignedRows({{"a", "1"}, {"long", "2"}}, {}), "a     1\nlong  2\n");
}

TEST(TerminalTest, RowsWrapUnderTheirValue) {
  Style narrow;
  narrow.columns = 8;
  EXPECT_EQ(AlignedRows({{"a", "bb cc dd"}}, narrow), "a  bb cc\n   dd\n");
}

TEST(TerminalTest, ProgressFitsTheTerminal) {
  const Progress half{1 << 20, 2 << 20};
  EXPECT_EQ(ProgressLine("loading", half, "", 80),
            "loading ███████████████░░░░░░░░░░░░░░░  50%  1.0 MiB of 2.0 MiB");
  EXPECT_EQ(ProgressLine("loading", half, "", 46), "loading ██████░░░░░░  50%  1.0 MiB of 2.0 MiB");
  EXPECT_EQ(ProgressLine("loading", half, "", 30), "loading ████████░░░░░░░░  50%");
  EXPECT_EQ(ProgressLine("a label too long", half, "", 12), "a labe  50%");
  for (size_t columns = 8; columns < 100; ++columns) {
    EXPECT_LT(DisplayWidth(ProgressLine("a label of some length", half, "", columns)), columns);
  }
}

TEST(TerminalTest, ProgressNamesWhatItCounts) {
  EXPECT_EQ(ProgressLine("atp", {3, 4}, "windows", 36), "atp ███████░░░  75%  3 of 4 windows");
}

TEST(TerminalTest, ControlCharactersCannotReachTheTerminal) {
  EXPECT_EQ(TerminalSafe("a\n\tb é"), "a\n\tb é");
  EXPECT_EQ(TerminalSafe("\033[2J"), "\xef\xbf\xbd[2J");
  EXPECT_EQ(TerminalSafe("\r\x7f"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(TerminalSafe("\xc2\x9b"), "\xef\xbf\xbd");  // CSI in one character
}

TEST(TerminalTest, FileGetsNoColorsAndNoBar) {
  std::FILE* file = std::tmpfile();
  EXPECT_TRUE(StyleOf(file).bold.empty());
  {
    ProgressBar bar(file, "loading");
    bar.Show(1, 2);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace lowkey
