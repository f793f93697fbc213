import { Link } from '@tanstack/react-router';

/** What stands at an address that there is no screen for. */
export function Lost() {
  return (
    <main className="page narrow">
      <h1>There is no such page</h1>
      <p>Look at the address, or go to the <Link to="/">overview</Link>.</p>
    </main>
  );
}
