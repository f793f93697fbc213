// What a program imports. Everything in gen/ follows from openapi.yaml.
export * from './gen/index.js';
export * from './errors.js';
export { Flowlane, type Connection } from './flowlane.js';
export { Batches, type WaitOptions } from './batches.js';
export { Executions, type Followed, type FollowOptions } from './executions.js';
export { items } from './items.js';
export { Records, type Source, type UploadOptions } from './records.js';
export type { Retries } from './retry.js';
export { signWebhook, SignatureError, verifyWebhook, type SignatureHeaders } from './webhook.js';
