#ifndef LOWKEY_TOOLS_CALIBRATION_SAMPLE_H_
#define LOWKEY_TOOLS_CALIBRATION_SAMPLE_H_

#include <string_view>
#include <vector>

namespace lowkey {

// Returns the texts of the built-in sample, about 14 thousand tokens of many kinds: a tale and a
// novel (public domain), a license, Markdown, C++, Python, configuration, and a mixture of dialogs,
// tables, mail, markup and other languages. They live as long as the program.
std::vector<std::string_view> CalibrationSample();

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_CALIBRATION_SAMPLE_H_
