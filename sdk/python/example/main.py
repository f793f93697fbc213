"""Goes the whole way with a service that FLOWLANE_URL and FLOWLANE_API_KEY name.

A credential, a flow, an upload, a run, its results, and a retry of what failed.
"""

import os

import flowlane


def main() -> None:
    with flowlane.Client(os.environ["FLOWLANE_URL"], api_key=os.environ["FLOWLANE_API_KEY"]) as flow:
        definition = define(flow)
        records = [{"id": "a"}, {"id": "b", "bad": "yes"}, {"id": "c"}]
        uploaded = flow.upload(records, chunk_size=2, concurrency=1, on_progress=lambda stored: print("stored", stored))
        batch_id = flow.trigger_definition(definition, {"record_set_id": uploaded["id"]})["batch_id"]
        show(flow, "batch", batch_id)
        for event in flow.follow(f"{batch_id}.0.1"):
            print(event.name)
        again = flow.retry_batch(batch_id, {"job_statuses": ["rejected"]})
        show(flow, "retry", again["batch_id"])
        try:
            flow.get_batch("unknown")
        except flowlane.NotFoundError as error:
            print(error.status, error.code, "true" if error.request_id else "false")


def define(flow: flowlane.Client) -> str:
    """Makes a credential and a flow that uses it."""
    credential = flow.create_credential(
        {
            "name": "example",
            "platform_id": "dialer",
            "auth_method": "basic_auth",
            "credentials": {"username": "acme", "password": "x"},
        }
    )
    task: flowlane.models.TaskInput = {
        "id": "up",
        "action_id": "dialer__api__upload",
        "credential_id": credential["id"],
        "params": {"list": "example", "key_field": "id", "row": "{{ input }}"},
    }
    definition = flow.create_definition(
        {"name": "example", "status": "active", "steps": [{"id": "send", "tasks": [task]}]}
    )
    return definition["id"]


def show(flow: flowlane.Client, name: str, batch_id: str) -> None:
    """Waits for a batch and prints its results."""
    print(name, flow.wait(batch_id)["status"])
    for result in flow.results(batch_id):
        message = result["error"] and result["error"]["provider_message"]
        print(result["position"], result["status"], *([message] if message else []))


if __name__ == "__main__":
    main()
