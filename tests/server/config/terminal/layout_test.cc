#include "server/config/terminal/layout.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

TEST(LayoutTest, WrapsAtSpacesAndIndentsWhatFollows) {
  EXPECT_EQ(Wrapped("one two three", 0, 7), "one two\nthree");
  EXPECT_EQ(Wrapped("one two three", 4, 11), "one two\n    three");
  EXPECT_EQ(Wrapped("one\ntwo  three", 0, 80), "one two three");
  EXPECT_EQ(Wrapped("", 4, 10), "");
}

TEST(LayoutTest, ParagraphsStayApart) { EXPECT_EQ(Wrapped("a b\n\nc", 0, 80), "a b\n\nc"); }

TEST(LayoutTest, WordThatIsTooLongHasItsOwnLine) {
  EXPECT_EQ(Wrapped("a bbbbbbbb c", 0, 4), "a\nbbbbbbbb\nc");
}

TEST(LayoutTest, CharactersAreCountedNotBytes) {
  EXPECT_EQ(DisplayWidth("é█"), 2u);
  EXPECT_EQ(Wrapped("éé éé", 0, 5), "éé éé");
}

TEST(LayoutTest, CommandsAreBrokenOutsideQuotes) {
  EXPECT_EQ(WrappedCommand("lowkey generate \"a b\"", 80), "  lowkey generate \"a b\"");
  EXPECT_EQ(WrappedCommand("lowkey generate --json \"a b c d e f\"", 30),
            "  lowkey generate --json \\\n      \"a b c d e f\"");
}

TEST(LayoutTest, EntriesAlignAndWideHeadsStandAlone) {
  const std::vector<Entry> entries = {{"--port N", "where"}, {"--very-long-name TEXT", "a b c"}};
  EXPECT_EQ(HeadWidth(entries, 40), 8u);
  EXPECT_EQ(EntryLines(entries, 8, 14),
            "--port N  where\n"
            "--very-long-name TEXT\n"
            "          a b\n"
            "          c\n");
}

TEST(LayoutTest, TableAlignsNumbersUnderTheirTitles) {
  Table table({"name", "tokens", "bytes"}, 6, 80);
  table.Widen({"a", "1", "1,000,000"});
  EXPECT_EQ(table.Header(), "name    tokens      bytes\n");
  EXPECT_EQ(table.Row({"a", "1", "1,000,000"}), "a            1  1,000,000\n");
}

TEST(LayoutTest, NarrowTablesStackNameAndNumbers) {
  const Table table({"name", "tokens", "bytes", "share"}, 12, 20);
  EXPECT_EQ(table.Row({"a long name", "1", "2", "3"}),
            "a long name\n"
            "         1      2\n"
            "        3\n");
}

}  // namespace
}  // namespace lowkey
