// Prints the user that the API server sees, and then waits on a watch for a
// configmap of the name in argv.
import { AuthenticationV1Api, KubeConfig, Watch } from "@kubernetes/client-node";

const config = new KubeConfig();
config.loadFromDefault();
const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
const answer = await config.makeApiClient(AuthenticationV1Api).createSelfSubjectReview({ body: review });
console.log(answer.status.userInfo.username);

const seen = new Promise((resolve, reject) => {
  const event = (type, object) => object.metadata.name === process.argv[2] && resolve(type);
  new Watch(config).watch("/api/v1/namespaces/default/configmaps", {}, event, reject).catch(reject);
});
console.log(await seen);
process.exit(0);
