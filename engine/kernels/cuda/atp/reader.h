#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_READER_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_READER_H_

// A block of threads reads tokens for a tile of rows. One warp computes a row, and the result
// depends neither on the other rows nor on the row's place in the tile: fused multiply-adds are
// written out, so that no compiler chooses them. Included by .cu files.

#include "engine/kernels/cuda/atp/rows.h"
#include "engine/kernels/cuda/atp/tiles.h"
#include "engine/kernels/cuda/atp/views.h"

namespace lowkey::atp {

// kD is the number of a vector's elements that a lane has, kR the number of a warp's rows.
template <typename T, int kD, int kR>
struct Reader {
  static constexpr int kSlots = kR * kWarps;  // rows of a tile
  static constexpr int kStride = kWarp * (kD > 2 ? kD : 2) + 1;
  // Says whether the sums of earlier parts lie in shared memory while a part is read: in registers
  // they would cost the third block at once. The widest heads have room for two blocks' tiles
  // anyway.
  static constexpr bool kKeepsInShared = kD <= 4;

  static __host__ __device__ int64_t SharedFloats(int64_t head_dim, int64_t max_rank) {
    return kSlots * (head_dim + kPage + 2 * (max_rank + 1)) + kPage * kStride +
           (kKeepsInShared ? kSlots * kWarp * (kD + 2) : 0);
  }

  const AtpReadArgs& a;
  const AtpSequence& s;
  const AtpTile& t;  // s and t are references: copies would take registers from the sums
  const int head, lane, first_row;
  // These are in shared memory; a row's numbers lie kSlots apart.
  float *const q, *const weights, *const low_q, *const low, *const tile;
  float* const kept;  // the thread's [kR][kD + 2], kThreads apart
  Sum<kD> sums[kR];   // sums of the part
  Sum<kD> held[kR];   // sums of earlier parts, unless kKeepsInShared

  __device__ __forceinline__ Reader(const AtpReadArgs& args, const AtpTile& of, int kv_head,
                                    float* memory)
      : a(args),
        s(args.sequences[of.sequence]),
        t(of),
        head(kv_head),
        lane(threadIdx.x % kWarp),
        first_row(threadIdx.x / kWarp * kR),
        q(memory),
        weights(q + kSlots * args.model.head_dim),
        low_q(weights + kSlots * kPage),
        low(low_q + kSlots * (args.max_rank + 1)),
        tile(low + kSlots * (args.max_rank + 1)),
        kept(tile + kPage * kStride + threadIdx.x) {}

  __device__ __forceinline__ int width() const { return static_cast<int>(a.model.head_dim); }
  __device__ __forceinline__ bool has(int r) const { return first_row + r < t.n_rows; }
  // Returns the sequence's row whose query head the tile's row is.
  __device__ __forceinline__ int64_t TokenOf(int row) const {
    return (t.first + row) / a.model.group;
  }
  __device__ __forceinline__ int64_t PositionOf(int row) const {
    return s.first_position + TokenOf(row);
  }
  __device__ __forceinline__ int64_t HeadOf(int row) const {
    return head * a.model.group + (t.first + row) % a.model.group;
  }

  __device__ __forceinline__ void LoadQueries() {
    const float scale = 1.0f / sqrtf(static_cast<float>(a.model.head_dim));
    for (int i = threadIdx.x; i < kSlots * width(); i += kThreads) {
      const int row = i / width(), c = i % width();
      float x = 0;
      if (row < t.n_rows) {
        x = a.q[(s.first_row + TokenOf(row)) * a.ld + HeadOf(row) * width() + c] * scale;
      }
      q[c * kSlots + row] = x;
    }
    __syncthreads();
  }

  // Turns a row's scores of 64 tokens into weights; returns the factor of the row's earlier sums.
  __device__ __forceinline__ float Weigh(int r, const float (&scores)[2], float& sum) {
    Sum<kD>& to = sums[r];
    const float top = fmaxf(to.max, WarpMax(fmaxf(scores[0], scores[1])));
    const bool none = top == kHidden;
    const float factor = none ? 1.0f : expf(to.max - top);
    float x[2];
    for (int k = 0; k < 2; ++k) {
      x[k] = none ? 0.0f : expf(scores[k] - top);
      weights[(lane + kWarp * k) * kSlots + first_row + r] = x[k];
    }
    sum = WarpSum(x[0] + x[1]);
    to.weights = fmaf(to.weights, factor, sum);
    for (int k = 0; k < kD; ++k) to.values[k] *= factor;
    to.max = top;
    return factor;
  }

  // Reads up to 64 tokens, of which row r sees the first n_visible[r].
  template <typename KeyOf, typename ValueOf>
  __device__ __forceinline__ void ReadTokens(int n, const int (&n_visible)[kR], KeyOf key_of,
                                             ValueOf value_of) {
    LoadTile<kD>(tile, kStride, width(), n, key_of);
    float scores[kR][2] = {};
    Dot<kR>(q + first_row, kSlots, tile, kStride, width(), scores);
    int most = 0;
    for (int r = 0; r < kR; ++r) {
      if (n_visible[r] == 0) continue;
      most = n_visible[r] > most ? n_visible[r] : most;
      for (int k = 0; k < 2; ++k) {
        if (lane + kWarp * k >= n_visible[r]) scores[r][k] = kHidden;
      }
      float sum;
      Weigh(r, scores[r], sum);
    }
    LoadTile<kD>(tile, kStride, width(), n, value_of);
    for (int i = 0; i < most; ++i) {
      float x[kR];
      TakeRows<kR>(weights + i * kSlots + first_row, x);
      for (int k = 0; k < kD; ++k) {
        const float y = tile[i * kStride + lane + kWarp * k];
        for (int r = 0; r < kR; ++r) {
          if (i < n_visible[r]) sums[r].values[k] = fmaf(x[r], y, sums[r].values[k]);
        }
      }
    }
  }

  // Reads tokens [begin, end) of one page, as far as rows see them.
  __device__ __forceinline__ void ReadPage(int64_t begin, int64_t end) {
    const int64_t first = begin / kPage * kPage;
    const int from = static_cast<int>(begin - first);
    const PageView<T> page =
        ViewPage<T>(a.model, a.pages[s.first_page + first / kPage], a.layer, head);
    const int64_t last = PositionOf(t.n_rows - 1) + 1;
    if (last < end) end = last;
    int n_visible[kR];
    for (int r = 0; r < kR; ++r) {
      int64_t seen = PositionOf(first_row + r) + 1;
      if (seen > end) seen = end;
      n_visible[r] = has(r) && seen > begin ? static_cast<int>(seen - begin) : 0;
    }
    const int64_t d = a.model.head_dim;
    ReadTokens(
        static_cast<int>(end - begin), n_visible, [=](int i) { return page.keys + (from + i) * d; },
        [=](int i) { return page.values + (from + i) * d; });
  }

  // Loads rows [first, first + n) of K' or V'; the last row is the mean.
  __device__ __forceinline__ void LoadPrincipal(const T* rows, int64_t row_width, int first,
                                                int n) {
    if (s.principal_bits == 0) {
      LoadTile<kD>(tile, kStride, width(), n,
                   [=](int i) { return rows + (first + i) * row_width; });
    } else {
      const int64_t rank = s.rank;
      LoadTile<kD>(tile, kStride, width(), n,
                   [=](int i) { return PrincipalRow(rows, row_width, rank, first + i); });
    }
  }

  // low_q = [q K'^T, q k_mean] (Eq. 7).
  __device__ __forceinline__ void Project(const BlockView<T>& block) {
    const int rows = static_cast<int>(s.rank) + 1;
    for (int first = 0; first < rows; first += kPage) {
      LoadPrincipal(block.keys, a.model.key_width, first, rows - first);
      float dots[kR][2] = {};
      Dot<kR>(q + first_row, kSlots, tile, kStride, width(), dots);
      for (int k = 0; k < 2; ++k) {
        const int j = first + lane + kWarp * k;
        for (int r = 0; r < kR && j < rows; ++r) low_q[j * kSlots + first_row + r] = dots[r][k];
      }
    }
    __syncwarp();
  }

  // Loads components [first, first + 64) of tokens [64 page, ..) of U^T.
  __device__ __forceinline__ void LoadBasis(const BlockView<T>& block, int page, int first) {
    const int64_t rank = s.rank;
    const int n = static_cast<int>(rank) - first;
    const T* u = block.u;
    if (s.u_bits == 0) {
      LoadTile<2>(tile, kStride, kPage, n,
                  [=](int j) { return u + (page * rank + first + j) * kPage; });
    } else if (s.u_bits == 8) {
      LoadTile<2>(tile, kStride, kPage, n,
                  [=](int j) { return CodedBasisRow(u, page * rank + first + j); });
    } else {
      LoadTile<2>(tile, kStride, kPage, n,
                  [=](int j) { return PackedBasisRow(u, rank, page, first + j); });
    }
  }

  // Scores 64 of a block's tokens, after Project: q k_mean + (q K'^T) U^T.
  __device__ __forceinline__ void ScorePage(const BlockView<T>& block, int64_t number, int page,
                                            float (&scores)[kR][2]) {
    const int rank = static_cast<int>(s.rank);
    for (int r = 0; r < kR; ++r) {
      for (int k = 0; k < 2; ++k) scores[r][k] = low_q[rank * kSlots + first_row + r];
    }
    for (int first = 0; first < rank; first += kPage) {
      LoadBasis(block, page, first);
      const int n = rank - first < kPage ? rank - first : kPage;
      Mix<kR, 2>(low_q + first * kSlots + first_row, kSlots, tile, kStride, n, scores);
    }
    for (int k = 0; k < 2; ++k) {
      const bool sink = number == 0 && page == 0 && lane + kWarp * k < s.n_sinks;
      for (int r = 0; r < kR; ++r) scores[r][k] = sink ? kHidden : scores[r][k];
    }
  }

  // Returns the scores of a row's far tokens.
  __device__ __forceinline__ float* ScoresOf(int row) const {
    const int64_t n_far = t.n_far_blocks * s.block_tokens;
    return a.scores + t.first_score + (head * t.n_rows + row) * n_far;
  }
  __device__ __forceinline__ void TakeScores(int64_t token, float (&scores)[kR][2]) const {
    for (int r = 0; r < kR; ++r) {
      for (int k = 0; k < 2; ++k) {
        scores[r][k] = has(r) ? ScoresOf(first_row + r)[token + lane + kWarp * k] : kHidden;
      }
    }
  }

  // low = low * factors + the weights of 64 tokens times U.
  __device__ __forceinline__ void GatherBasis(const BlockView<T>& block, int page,
                                              const float (&factors)[kR]) {
    const int rank = static_cast<int>(s.rank);
    int loaded = (rank - 1) / kPage * kPage;  // ScorePage has loaded these
    if (s.n_refined > 0) loaded = -1;
    for (int first = (rank - 1) / kPage * kPage; first >= 0; first -= kPage) {
      if (first != loaded) LoadBasis(block, page, first);
      float dots[kR][2] = {};
      Dot<kR>(weights + first_row, kSlots, tile, kStride, kPage, dots);
      for (int k = 0; k < 2; ++k) {
        const int j = first + lane + kWarp * k;
        for (int r = 0; r < kR && j < rank; ++r) {
          float& to = low[j * kSlots + first_row + r];
          to = page == 0 ? dots[r][k] : fmaf(to, factors[r], dots[r][k]);
        }
      }
    }
  }

  // Reads a far block; the numbers in `low` are added through V'. (Here and below a tile is read in
  // one place for all ways of reading, because each such place is compiled once per kind of row.)
  __device__ __forceinline__ void ReadBlock(int64_t number) {
    const BlockView<T> block =
        ViewBlock<T>(a.model, s, a.blocks[s.first_block + number], number, a.layer, head);
    if (s.n_refined == 0) Project(block);
    if (s.is_linear) {
      ReadMoments(number);
    } else {
      ReadByTokens(block, number);
    }
    AddPrincipalValues(block);
  }

  // Reads a block token by token through U; a tile that refines reads the scores that are left.
  __device__ __forceinline__ void ReadByTokens(const BlockView<T>& block, int64_t number) {
    const int rank = static_cast<int>(s.rank);
    float all[kR] = {};  // weights of the block's tokens
    for (int page = 0; page * kPage < s.block_tokens; ++page) {
      float scores[kR][2], factors[kR];
      if (s.n_refined > 0) {
        TakeScores(number * s.block_tokens + page * kPage, scores);
      } else {
        ScorePage(block, number, page, scores);
      }
      for (int r = 0; r < kR; ++r) {
        float sum;
        factors[r] = Weigh(r, scores[r], sum);
        all[r] = fmaf(all[r], factors[r], sum);
      }
      __syncwarp();
      GatherBasis(block, page, factors);
      __syncwarp();
    }
    if (lane == 0) {
      for (int r = 0; r < kR; ++r) low[rank * kSlots + first_row + r] = all[r];
    }
  }

  // Reads a block by its means and second moments (Eq. 8, around the mean key), after Project.
  __device__ __forceinline__ void ReadMoments(int64_t number) {
    const int rank = static_cast<int>(s.rank);
    const auto count = static_cast<float>(s.NumTokens(number));
    for (int r = 0; r < kR; ++r) {
      const float *from = low_q + first_row + r, mean_score = from[rank * kSlots];
      float squares = 0;
      for (int j = lane; j < rank; j += kWarp) {
        squares = fmaf(from[j * kSlots], from[j * kSlots], squares);
      }
      const float score = mean_score + WarpSum(squares) / (2 * count);
      Sum<kD>& to = sums[r];
      const float top = fmaxf(to.max, score);
      const float factor = expf(to.max - top), weight = expf(score - top);
      to.weights = fmaf(to.weights, factor, count * weight);
      for (int k = 0; k < kD; ++k) to.values[k] *= factor;
      to.max = top;
      // weight (a V' + c v_mean)
      for (int j = lane; j <= rank; j += kWarp) {
        low[j * kSlots + first_row + r] = weight * (j < rank ? from[j * kSlots] : count);
      }
    }
  }

  // Adds `low` times V' and the mean value to each row's sum of values.
  __device__ __forceinline__ void AddPrincipalValues(const BlockView<T>& block) {
    const int rank = static_cast<int>(s.rank);
    float values[kR][kD];
    for (int r = 0; r < kR; ++r) {
      for (int k = 0; k < kD; ++k) values[r][k] = sums[r].values[k];
    }
    for (int first = 0; first <= rank; first += kPage) {
      const int n = rank + 1 - first < kPage ? rank + 1 - first : kPage;
      LoadPrincipal(block.values, a.model.value_width, first, n);
      Mix<kR, kD>(low + first * kSlots + first_row, kSlots, tile, kStride, n, values);
    }
    for (int r = 0; r < kR; ++r) {
      for (int k = 0; k < kD; ++k) sums[r].values[k] = values[r][k];
    }
  }

  __device__ __forceinline__ int64_t NumFarTokens() const {
    return t.n_far_blocks * s.block_tokens;
  }

  // Reads the far blocks of one part. Merged blocks are one per bit of their number, the last
  // first.
  __device__ __forceinline__ void ReadFarPart(int64_t part) {
    const int64_t n_blocks = s.block_tokens < kAtpPartTokens ? kAtpPartTokens / s.block_tokens : 1;
    int64_t first = part * n_blocks, end = first + n_blocks;
    if (end > t.n_far_blocks) end = t.n_far_blocks;
    if (s.merges) {
      end = t.n_far_blocks;
      for (; part > 0; --part) end &= end - 1;
      first = end - 1;
    }
    for (int64_t b = first; b < end; ++b) ReadBlock(b);
  }

  // Reads the exact tokens of one part, counted from the first exact token.
  __device__ __forceinline__ void ReadExactPart(int64_t part) {
    const int64_t near = NumFarTokens(), end = PositionOf(t.n_rows - 1) + 1;
    int64_t begin = (near / kAtpPartTokens + part) * kAtpPartTokens;
    const int64_t part_end = begin + kAtpPartTokens < end ? begin + kAtpPartTokens : end;
    if (begin < near) begin = near;
    if (part == 0 && near > 0 && s.n_sinks > 0) begin -= kPage;  // the sinks come in its place
    for (; begin < part_end; begin += kPage) {
      const bool is_near = begin >= near;
      ReadPage(is_near ? begin : 0, is_near ? begin + kPage : s.n_sinks);
    }
  }

  // Reads the chosen tokens from the copies that their blocks keep.
  __device__ __forceinline__ void ReadChosenPart() {
    const int64_t n_choosable = NumFarTokens() - s.n_sinks;
    const auto n_chosen = static_cast<int>(s.n_refined < n_choosable ? s.n_refined : n_choosable);
    const int32_t* chosen = a.chosen + (t.choice * a.model.n_kv_heads + head) * a.max_refined;
    const int64_t key_width = a.model.key_width, value_width = a.model.value_width;
    for (int first = 0; first < n_chosen; first += kPage) {
      const int n = n_chosen - first < kPage ? n_chosen - first : kPage;
      int n_visible[kR];
      for (int r = 0; r < kR; ++r) n_visible[r] = has(r) ? n : 0;
      const auto kept = [&](int i) {
        const int64_t token = chosen[first + i], number = token / s.block_tokens;
        const BlockView<T> block =
            ViewBlock<T>(a.model, s, a.blocks[s.first_block + number], number, a.layer, head);
        return KeptToken(block.kept, s, token % s.block_tokens);
      };
      if (s.kept_bits == 0) {
        const auto key = [&](int i) { return reinterpret_cast<const T*>(kept(i)); };
        ReadTokens(n, n_visible, key, [&](int i) { return key(i) + key_width; });
      } else {
        ReadTokens(
            n, n_visible, [&](int i) { return KeptRow(kept(i), key_width); },
            [&](int i) { return KeptRow(kept(i) + KeptRowBytes(key_width), value_width); });
      }
    }
  }

  // Keeps the part's sums while the next part is read.
  __device__ __forceinline__ void Keep() {
    for (int r = 0; r < kR; ++r) {
      if constexpr (!kKeepsInShared) {
        held[r] = sums[r];
        continue;
      }
      float* to = kept + r * (kD + 2) * kThreads;
      for (int k = 0; k < kD; ++k) to[k * kThreads] = sums[r].values[k];
      to[kD * kThreads] = sums[r].max, to[(kD + 1) * kThreads] = sums[r].weights;
    }
  }
  // Folds the part's sums into the kept sums.
  __device__ __forceinline__ void FoldIntoKept() {
    for (int r = 0; r < kR; ++r) {
      Sum<kD> all;
      if constexpr (kKeepsInShared) {
        const float* from = kept + r * (kD + 2) * kThreads;
        for (int k = 0; k < kD; ++k) all.values[k] = from[k * kThreads];
        all.max = from[kD * kThreads], all.weights = from[(kD + 1) * kThreads];
      } else {
        all = held[r];
      }
      all.Fold(sums[r]);
      sums[r] = all;
    }
  }

  __device__ __forceinline__ void ReadPart(int64_t part) {
    for (int r = 0; r < kR; ++r) sums[r] = {};
    const int64_t n_chosen_parts = s.n_refined > 0 && t.n_far_blocks > 0 ? 1 : 0;
    if (part < t.n_far_parts) {
      ReadFarPart(part);
    } else if (part < t.n_parts - n_chosen_parts) {
      ReadExactPart(part - t.n_far_parts);
    } else {
      ReadChosenPart();
    }
  }
};

// Returns a row's sum in a slot: [head_dim] values, the maximum, the sum of weights.
__device__ __forceinline__ float* SlotRow(const AtpReadArgs& a, int64_t slot, int64_t head,
                                          int64_t row) {
  return a.slots +
         ((slot * a.model.n_kv_heads + head) * a.max_tile_rows + row) * (a.model.head_dim + 2);
}

template <int kD>
__device__ __forceinline__ void WriteOutput(const AtpReadArgs& a, const AtpTile& t, int64_t head,
                                            int row, const Sum<kD>& sum) {
  const int64_t at = t.first + row, d = a.model.head_dim;
  const int64_t step_row = a.sequences[t.sequence].first_row + at / a.model.group;
  float* out = a.out + step_row * a.ld_out + (head * a.model.group + at % a.model.group) * d;
  for (int k = 0; k < kD; ++k) {
    const int64_t c = threadIdx.x % kWarp + kWarp * k;
    if (c < d) out[c] = sum.values[k] / sum.weights;
  }
}

}  // namespace lowkey::atp

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_READER_H_
