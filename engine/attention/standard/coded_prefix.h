#ifndef LOWKEY_ENGINE_ATTENTION_STANDARD_CODED_PREFIX_H_
#define LOWKEY_ENGINE_ATTENTION_STANDARD_CODED_PREFIX_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/standard/host.h"
#include "engine/attention/standard/prefix_codes.h"

namespace lowkey {

// Softmax attention whose prefixes can be kept in a calibrated code (PrefixStorage). For sequences
// with that option a prompt is cut into blocks of kPrefixBlockTokens. The step that computes the
// last row of a block encodes the block layer by layer, after that row has attended, and replaces
// its pages by what the code gives back: rows of the block read it exactly, all later rows read it
// as decoded. Tokens after the prompt's last whole block stay exact. So positions and the prompt's
// length alone decide what a row reads, and a prefix that is rebuilt from the codes has the bits of
// one that was computed.
//
// A sequence holds its pages. Codes belong to the prefixes that are kept
// (AttentionMechanism::Prefix) and to sequences that continue from one until their next Plan, which
// decodes them; a sequence only remembers those of its blocks that still exist. So codes of a full
// cache can be dropped.
class CodedStandard : public HostStandard {
 public:
  // context.codes is set and fits the geometry.
  CodedStandard(Mechanism id, const AttentionContext& context);

  absl::Status CheckAvailable(const AttentionOptions&) const override { return absl::OkStatus(); }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  std::optional<int64_t> prompt_block(const AttentionOptions& options) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;
  std::optional<int64_t> part_tokens(const AttentionOptions& options) const override;
  void AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                  SequenceCache& prefix) const override;
  // A piece is a block's code where prefixes are coded.
  std::optional<PieceShape> piece_shape(const AttentionOptions& options) const override;
  absl::Span<const std::byte> PieceBytes(const SequenceCache& prefix, int64_t i) const override;
  absl::Status AppendPiece(SequenceCache& prefix, absl::Span<const std::byte> bytes) override;
  SequenceReport Report(absl::Span<const SequenceCache* const> sequences) const override;

 private:
  // A block that the planned step ends.
  struct Closing {
    SequenceCache* sequence = nullptr;
    int64_t block = 0;
    std::shared_ptr<const PrefixBits> bits;
    std::vector<PageRotation> rotations;  // by page of the block
    std::shared_ptr<Slab> slab;           // its code
    int64_t size_bytes = 0;               // written so far
  };

  // INVALID_ARGUMENT for bytes that are no block's code with so many bits.
  absl::Status CheckBlock(const PrefixBits& bits, absl::Span<const std::byte> bytes) const;
  std::shared_ptr<const PrefixBits> BitsOf(const AttentionOptions& options);
  // Returns the most bytes of a block's code.
  int64_t MaxCodeBytes(const AttentionOptions& options) const;
  // Rebuilds the pages of the blocks whose codes the sequence holds.
  absl::Status Rebuild(SequenceCache& sequence);
  absl::Status RebuildBlock(SequenceCache& sequence, int64_t block);
  absl::Status PlanClosing(const Segment& segment);
  void Append(Closing& closing, int64_t layer, absl::Span<const std::vector<std::byte>> shares);

  const PrefixCodes& codes_;
  std::map<int32_t, std::shared_ptr<const PrefixBits>> bits_;  // by hundredths of a bit
  std::vector<Closing> closings_;
  std::vector<PageCodeScratch> scratch_;             // by thread
  std::vector<std::vector<std::byte>> share_codes_;  // of one layer, by closing, page and group
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_CODED_PREFIX_H_
