export interface Mistake {
  line: number;
  message: string;
}

/** How many mistakes of a file are told. */
export const shownMistakes = 20;
