#ifndef LOWKEY_SERVER_API_KSERVE_DESCRIBE_H_
#define LOWKEY_SERVER_API_KSERVE_DESCRIBE_H_

#include <string>

#include "absl/status/status.h"
#include "inference/grpc_service.pb.h"
#include "server/text/text_service.h"

namespace lowkey {

// NOT_FOUND unless the model is served in this version; an empty name or version is the only one.
absl::Status CheckServed(const TextService& service, const std::string& name,
                         const std::string& version);

// Describe the server and its model.
void DescribeServer(inference::ServerMetadataResponse& response);
void DescribeModel(const TextService& service, inference::ModelMetadataResponse& response);
void DescribeConfig(const TextService& service, inference::ModelConfig& config);
void DescribeRepository(const TextService& service,
                        const inference::RepositoryIndexRequest& request, bool is_ready,
                        inference::RepositoryIndexResponse& response);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_DESCRIBE_H_
