// One input is a list of edits of a good calibration: three bytes say where, the fourth is what is
// there then; an input whose length is no multiple of four cuts the file. Codes that are accepted
// must code any page, and give back what they wrote.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/weight_set.h"
#include "engine/runtime/calibration/principal_code_file.h"
#include "tests/engine/runtime/calibration/coded_model.h"

namespace lowkey {
namespace {

// A model, and the bytes of its calibration.
class Calibrated {
 public:
  Calibrated() {
    const auto codes = model_.Calibrate(1);
    LK_CHECK(WritePrincipalCodes(path(), *codes, WeightsFingerprint(checkpoint())).ok());
    bytes_ = ReadFileOrDie(path());
  }

  const Checkpoint& checkpoint() const { return *model_.checkpoint(); }
  std::string path() const { return directory_.File("principal.safetensors"); }
  const std::string& bytes() const { return bytes_; }

 private:
  CodedModel model_;
  TempDirectory directory_;
  std::string bytes_;
};

std::string Edited(std::string bytes, const uint8_t* data, size_t size) {
  for (size_t i = 0; i + 4 <= size; i += 4) {
    const size_t at = data[i] | data[i + 1] << 8 | data[i + 2] << 16;
    bytes[at % bytes.size()] = static_cast<char>(data[i + 3]);
  }
  if (size % 4 != 0) bytes.resize((bytes.size() - 1) * (data[size - 1] + 1) / 256);
  return bytes;
}

void IndexPages(const HeadCodes& codes, const ModelConfig& config) {
  const AttentionGeometry g = GeometryOf(config, StorageType::kBFloat16);
  const TokenIndex index(g, codes);
  std::vector<float> keys(g.key_dim() * kPageTokens), values(g.head_dim * kPageTokens);
  std::minstd_rand rng(2);
  for (std::vector<float>* half : {&keys, &values}) {
    for (float& x : *half) x = static_cast<float>(rng() % 2001) * 1e-3f - 1.0f;
  }
  TokenIndex::Scratch scratch;
  std::vector<std::byte> page(TokenIndex::PageBytes(g));
  const int64_t rest_bytes = TokenRest::KeyBytes(g.key_dim()) + TokenRest::ValueBytes(g.head_dim);
  std::vector<std::byte> rest(kPageTokens * rest_bytes);
  for (int64_t head = 0; head < g.n_kv_heads; ++head) {
    index.Encode({g.n_layers - 1, head, 7, keys.data(), values.data()}, scratch, page.data(),
                 rest.data());
  }
}

void CodePages(const PrefixCodes& codes, const ModelConfig& config) {
  const AttentionGeometry g = GeometryOf(config, StorageType::kBFloat16);
  std::vector<std::byte> page(PageBytes(g)), again(PageBytes(g));
  std::minstd_rand rng(1);
  for (std::byte& b : page) b = static_cast<std::byte>(rng());
  const PageRotation rotation(codes, 1);
  PageCodeScratch scratch;
  for (const double bits : {1.5, 3.0, 8.0}) {
    const PrefixBits plan = PlanPrefixBits(codes, bits);
    for (int64_t group = 0; group < codes.n_groups; ++group) {
      std::vector<std::byte> code;
      EncodeShare({g, codes, plan, rotation, page.data(), 0, group}, scratch, code);
      LK_CHECK(static_cast<int64_t>(code.size()) <= MaxCodeBytes(codes.group.dim(), bits));
      LK_CHECK(DecodeShare({g, codes, plan, rotation, again.data(), 0, group}, code, scratch).ok());
      code.pop_back();
      LK_CHECK(!DecodeShare({g, codes, plan, rotation, page.data(), 0, group}, code, scratch).ok());
    }
  }
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lowkey::Calibrated calibrated;
  lowkey::WriteFileOrDie(calibrated.path(), lowkey::Edited(calibrated.bytes(), data, size));
  const auto codes = lowkey::ReadPrincipalCodes(calibrated.path(), calibrated.checkpoint());
  if (codes.ok()) {
    lowkey::CodePages((*codes)->prefixes, calibrated.checkpoint().config);
    lowkey::IndexPages((*codes)->heads, calibrated.checkpoint().config);
  } else {
    LK_CHECK(!codes.status().message().empty());
  }
  return 0;
}
