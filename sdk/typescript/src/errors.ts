import type { Error as ErrorBody, ValidationEntry } from './gen/index.js';

/** What every error of this package is. */
export class FlowlaneError extends Error {
  override name = 'FlowlaneError';
}

/** No answer came, however often it was tried: the connection failed or was cut. `cause` says how. */
export class NetworkError extends FlowlaneError {
  override name = 'NetworkError';
}

/** The service answered with an error. */
export class ApiError extends FlowlaneError {
  override name = 'ApiError';
  /** A stable word for what is wrong, for example record_set_consumed; empty where something else than the service answered. */
  readonly code: string;
  /** Quote it when you report a problem. */
  readonly requestId: string;
  /** What to do next, in a sentence for people. */
  readonly hint: string;
  /** Where the reference says more of this code. */
  readonly docs: string;
  /** Every bad field of a request that is not valid: its place, and what is wrong with it. */
  readonly fields: ReadonlyArray<ValidationEntry>;
  /** Every bad expression of a definition, in a sentence. */
  readonly expressionErrors: ReadonlyArray<string>;

  /** Takes the status of the answer, its body as it was parsed, and its headers. */
  constructor(
    readonly status: number,
    readonly body: unknown,
    headers: Headers,
  ) {
    const known: Partial<ErrorBody> = typeof body === 'object' && body !== null ? body : {};
    const detail = known.detail;
    const fields = Array.isArray(detail) ? detail : [];
    const expressions = typeof detail === 'object' && 'expression_errors' in detail ? detail.expression_errors : [];
    const reasons = [...fields.map((f) => `${f.loc.join('.')}: ${f.msg}`), ...expressions];
    super(`${status}: ${typeof detail === 'string' ? detail : reasons.join('; ') || 'no reason was given'}`);
    this.code = known.code ?? '';
    this.requestId = known.request_id ?? headers.get('X-Request-Id') ?? '';
    this.hint = known.hint ?? '';
    this.docs = known.docs ?? '';
    this.fields = fields;
    this.expressionErrors = expressions;
  }
}

/** 401: the key or the token is missing, wrong, expired or revoked. */
export class AuthenticationError extends ApiError {
  override name = 'AuthenticationError';
}

/** 403: the caller is known and may not do this. */
export class PermissionError extends ApiError {
  override name = 'PermissionError';
}

/** 404: there is no such thing in this organization. */
export class NotFoundError extends ApiError {
  override name = 'NotFoundError';
}

/** 409: it exists already, or its state does not allow this. */
export class ConflictError extends ApiError {
  override name = 'ConflictError';
}

/** 422: `fields` or `expressionErrors` say what is not valid. */
export class ValidationError extends ApiError {
  override name = 'ValidationError';
}

/** 429: too many requests, still after the retries. */
export class RateLimitError extends ApiError {
  override name = 'RateLimitError';
}

/** 5xx: the service failed, still after the retries. */
export class ServerError extends ApiError {
  override name = 'ServerError';
}

const byStatus: Record<number, typeof ApiError> = {
  401: AuthenticationError,
  403: PermissionError,
  404: NotFoundError,
  409: ConflictError,
  422: ValidationError,
  429: RateLimitError,
};

/** Makes the error of what a request ended with; what the caller's own signal aborted stays as it is. */
export function toError(error: unknown, response: Response | undefined, request: Request): unknown {
  if (error instanceof FlowlaneError || request.signal.aborted) return error;
  if (!response) return new NetworkError(`${request.method} ${new URL(request.url).pathname}: no answer`, { cause: error });
  const kind = byStatus[response.status] ?? (response.status >= 500 ? ServerError : ApiError);
  return new kind(response.status, error, response.headers);
}
