#ifndef LOWKEY_TOOLS_CALIBRATION_CODE_TABLE_H_
#define LOWKEY_TOOLS_CALIBRATION_CODE_TABLE_H_

#include "engine/attention/standard/prefix_codes.h"
#include "server/config/json_text.h"

namespace lowkey {

// Prints the curve of a calibration as a table: bits, bytes of a token, their share, distortion.
void PrintCodeCurve(const PrefixCodes& codes);

// Returns the same as a JSON array.
nlohmann::ordered_json CodeCurveJson(const PrefixCodes& codes);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_CALIBRATION_CODE_TABLE_H_
