import { write } from './exact';

/** Names requests that must be done once: the same one gets the same name, so that what was not answered is not done twice. */
export class RequestKey {
  private of = '';
  private is = '';

  for(request: unknown): string {
    const of = write(request);
    if (this.of !== of) {
      this.of = of;
      this.is = crypto.randomUUID();
    }
    return this.is;
  }
}
