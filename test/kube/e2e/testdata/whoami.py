"""Prints the user that the API server sees, and then waits on a watch for a
configmap of the name in argv."""
import sys

from kubernetes import client, config, watch

config.load_kube_config()
review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
answer, _, _ = client.ApiClient().call_api(
    "/apis/authentication.k8s.io/v1/selfsubjectreviews", "POST", body=review,
    header_params={"Content-Type": "application/json"}, auth_settings=["BearerToken"], response_type="object")
print(answer["status"]["userInfo"]["username"], flush=True)
for event in watch.Watch().stream(client.CoreV1Api().list_namespaced_config_map, "default"):
    if event["object"].metadata.name == sys.argv[1]:
        print(event["type"])
        break
